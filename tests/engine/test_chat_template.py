"""A chat template comes from a folder: whatever it does, it ends soon, in words."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from layerlight.core.errors import BadRequest, BrokenModel, Stopped
from layerlight.engine import chat_template
from layerlight.engine.chat_template import render
from layerlight.engine.engine import TorchEngine
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import CHAT, request_for, write_model

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 < 2?"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "100 % sure? é 漢"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
PLAIN = {
    "tiny": CHAT,
    "loop": "{% for m in messages %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}"
    "{{ loop.previtem is defined }}{{ loop.cycle('a', 'b') }}{{ m.content | trim }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0, t='') %}{% for m in messages if m.role != 'system' %}"
    "{% set ns.n = ns.n + 1 %}{% set ns.t = ns.t ~ m['content'] ~ '|' %}{% endfor %}{{ ns.n }}{{ ns.t }}",
    "macros": "{% macro say(m, sep=' ') %}{{ m.role ~ sep ~ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ say(m, sep=': ') }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', 'user')"
    " | list | length }}{{ messages[0] | tojson(indent=2) }}{{ messages[1:] | tojson }}{{ 'x' | upper | indent(4) }}",
    "sums": "{{ 7 * 3 % 4 + 2 ** 3 }}{{ 'ab' * 2 + 'c' }}{{ '%s-%d' % ('a', 3) }}{{ [1] + [2] }}"
    "{{ '-'.join(['a', 'b']) }}",
    "nothing": "{% for x in nothing %}{{ x }}{% else %}empty{% endfor %}{{ tools }}{{ documents }}"
    "{{ add_generation_prompt }}",
    "nested": "{% for k, v in messages[0].items() recursive %}{{ k }}={{ v }};{% for c in v %}{{ c }}"
    "{% endfor %}{% endfor %}",
}  # fmt: skip
"""What public templates are made of."""


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_the_bounds_change_no_word(name: str) -> None:
    """The same prompt as transformers makes."""
    theirs, _ = render_jinja_template([MESSAGES], chat_template=PLAIN[name], add_generation_prompt=True, **TOKENS)
    assert render(PLAIN[name], MESSAGES, TOKENS, lambda: None, "a model") == theirs[0]


_TWICE = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = OP %}{% endfor %}{{ ns.x }}"
ENDLESS = {
    "loops that write": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "loops that are still": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops over one list": "{% set r = range(99999) | list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
    "filtered loops": "{% set r = range(99999) | list %}{% for i in r %}{% for j in r if false %}{% endfor %}"
    "{% endfor %}",
    "macros that part": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(90) }}",
    "a macro within itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a loop within itself": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "doubling by ~": _TWICE.replace("OP", "ns.x ~ ns.x"),
    "doubling by +": _TWICE.replace("OP", "ns.x + ns.x"),
    "doubling by *": _TWICE.replace("OP", "ns.x * 2"),
    "doubling by join": _TWICE.replace("OP", "[ns.x, ns.x] | join"),
    "doubling by a method": _TWICE.replace("OP", "ns.x.replace('a', ns.x)"),
    "a number without end": "{% set ns = namespace(x=7) %}{% for i in range(99) %}"
    "{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "a power": "{{ 9 ** 999999999 }}",
    "a power of powers": "{{ (9 ** 99) ** (9 ** 9) }}",
    "text times a number": "{{ 'a' * 10 ** 10 }}",
    "a number times text": "{{ 10 ** 10 * 'a' }}",
    "a width": "{{ 'a' | center(10 ** 10) }}",
    "a width in a method": "{{ 'a'.ljust(10 ** 10) }}",
    "a width in a format": "{{ '%9999999999d' % 1 }}",
    "nothing as a divisor": "{{ 1 / 0 }}",
    "nothing as a modulus": "{{ 1 % 0 }}",
    "a float too large": "{{ 2.0 ** 99999 }}",
    "brackets too deep": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a long template": " " * 2**21,
    "no template": "{% if %}",
    "no such filter": "{{ 1 | nothing }}",
    "what is private": "{{ ''.__class__.__mro__ }}",
}


@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_what_would_not_end_is_refused_by_name(name: str) -> None:
    """A hostile template is a fault of the model's files, said as one; nothing else is."""
    with pytest.raises(BrokenModel, match="chat template of a model can't be used: ") as refused:
        render(ENDLESS[name], MESSAGES, TOKENS, lambda: None, "a model")
    assert "chat_template.jinja" in refused.value.hint
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    "error", [ZeroDivisionError, OverflowError, RecursionError, MemoryError, IndexError, AttributeError]
)
def test_whatever_a_filter_raises_is_said(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(*unused: Any) -> None:
        raise error("deep inside")

    compiled, _ = chat_template._compiled("{{ messages | trim }}")
    monkeypatch.setitem(compiled.environment.filters, "trim", breaking)
    with pytest.raises(BrokenModel, match="chat template of a model"):
        render("{{ messages | trim }}", MESSAGES, TOKENS, lambda: None, "a model")


@pytest.mark.parametrize("name", ["loops that write", "loops that are still", "macros that part", "filtered loops"])
def test_a_stop_is_heard_within_a_rendering(name: str) -> None:
    """F01: at the next turn of a loop or the next call."""
    steps = 0

    def check() -> None:
        nonlocal steps
        steps += 1
        if steps == 100:
            raise Stopped()

    with pytest.raises(Stopped):
        render(ENDLESS[name], MESSAGES, TOKENS, check, "a model")
    assert steps == 100


def test_a_refusal_is_the_conversations_fault() -> None:
    template = "{{ raise_exception('Roles must alternate.') }}"
    with pytest.raises(BadRequest, match=r"refuses this conversation: Roles must alternate\."):
        render(template, MESSAGES, TOKENS, lambda: None, "a model")


def test_the_engine_refuses_and_goes_on(engine: TorchEngine, tmp_path: Any) -> None:
    """The model with a hostile template stays loaded, and mended it answers."""
    folder = write_model(tmp_path / "model", "tied", chat_template=ENDLESS["loops that write"])
    engine.load(request_for(folder), Events().job())
    with pytest.raises(BrokenModel, match="chat template of model"):
        engine.generate(text_request(), Events().job())
    assert engine.loaded is not None
    engine.loaded.tokenizer.chat_template = CHAT
    assert len(ask(engine).tokens) == 8
