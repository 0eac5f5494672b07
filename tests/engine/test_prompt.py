"""What a conversation becomes before anything runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from layerlight.core.errors import BadRequest, BrokenModel, PromptTooLong, RunFailed, Stopped
from layerlight.core.messages import ChatMessage
from layerlight.engine.prompt import PIECE, clean, encode, end_tokens, prepare
from tests.engine.events import text_request
from tests.engine.tiny_models import CHAT, VOCABULARY, byte_tokenizer

BEGIN = 0
WITHOUT_BEGIN = CHAT.replace("{{ bos_token }}", "")


@pytest.mark.parametrize(
    "template", [CHAT, WITHOUT_BEGIN, CHAT.replace("{{ bos_token }}", "{{ bos_token }}" * 2), None]
)
@pytest.mark.parametrize("adds_bos", [True, False])
def test_exactly_one_token_begins_the_text(template: str | None, adds_bos: bool) -> None:
    """F10: written by the template, added by the tokenizer, by both, by neither."""
    tokenizer = byte_tokenizer(template, adds_bos=adds_bos)
    ids = encode([ChatMessage("user", "hi")], tokenizer)
    writes = template is not None and "bos_token" in template
    assert ids.count(BEGIN) == (1 if writes or adds_bos else 0)
    assert (ids[0] == BEGIN) == (writes or adds_bos)


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_beginning_in_the_text_itself_is_not_doubled(adds_bos: bool) -> None:
    ids = encode([ChatMessage("user", "<s>hi")], byte_tokenizer(adds_bos=adds_bos))
    assert ids.count(BEGIN) == 1


def test_without_a_template_the_text_is_simply_gone_on_with() -> None:
    """E15: no roles, nothing added."""
    tokenizer = byte_tokenizer()
    ids = encode([ChatMessage("system", "Be brief."), ChatMessage("user", "Once upon")], tokenizer)
    assert tokenizer.decode(ids) == "Be brief.\n\nOnce upon"


@pytest.mark.parametrize("adds_eos", [True, False])
def test_an_end_that_the_tokenizer_adds_is_taken_off(adds_eos: bool) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    if adds_eos:
        end = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        tokenizer.backend_tokenizer.post_processor = end
    assert 1 not in encode([ChatMessage("user", "hi")], tokenizer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("half \ud83e emoji", "half � emoji"),
        ("\udd16", "�"),
        ("whole \ud83e\udd16", "whole 🤖"),
        ("nul\0byte", "nul�byte"),
        ("plain é 漢", "plain é 漢"),
    ],
)
@pytest.mark.parametrize("template", [CHAT, None])
def test_text_that_is_no_unicode_is_mended(text: str, expected: str, template: str | None) -> None:
    """F15: lone halves of surrogate pairs and NUL, in chat and in plain completion."""
    assert clean(text) == expected
    tokenizer = byte_tokenizer(template)
    assert expected in tokenizer.decode(encode([ChatMessage("user", text)], tokenizer))


@pytest.mark.parametrize(
    ("length", "asked", "context", "room", "cut"),
    [(10, 5, 16, 5, False), (10, 6, 16, 6, False), (10, 7, 16, 6, True), (15, 100, 16, 1, True)],
)
def test_prompt_and_answer_together_fit_the_context(
    length: int, asked: int, context: int, room: int, cut: bool
) -> None:
    """F04: counted before anything runs."""
    prompt = prepare(text_request("x" * length, asked), byte_tokenizer(), context, VOCABULARY)
    assert (len(prompt.ids), prompt.max_new_tokens, prompt.cut_by_context) == (length, room, cut)


@pytest.mark.parametrize("length", [16, 17, 5000])
def test_a_prompt_that_leaves_no_room_is_refused_with_the_counts(length: int) -> None:
    """F04."""
    with pytest.raises(PromptTooLong, match=f"{length} tokens; the context holds 16"):
        prepare(text_request("x" * length), byte_tokenizer(), 16, VOCABULARY)


def test_a_tokenizer_of_another_model_is_said() -> None:
    """An id beyond the embedding would be an IndexError on the CPU and poison a CUDA context."""
    with pytest.raises(RunFailed, match="tokenizer knows more"):
        prepare(text_request("z"), byte_tokenizer(), 64, vocabulary=10)


def test_a_template_that_refuses_is_a_clear_error() -> None:
    template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role.') }}{% endif %}x"
    with pytest.raises(BadRequest, match=r"No system role\."):
        encode([ChatMessage("system", "a"), ChatMessage("user", "b")], byte_tokenizer(template))
    with pytest.raises(BrokenModel, match="line 1 of it is no template"):
        encode([ChatMessage("user", "b")], byte_tokenizer("{{ messages[0]['content'] | no_such_filter }}"))


@pytest.mark.parametrize("template", [CHAT, None])
@pytest.mark.parametrize("text", ["x", " a", "word ", "漢"])
def test_many_megabytes_are_refused_before_they_are_all_counted(text: str, template: str | None) -> None:
    """F04: by the characters alone, or by the first pieces; the tokenizer never sees the whole."""
    tokenizer = byte_tokenizer(template)
    seen: list[int] = []

    class Watched:
        name_or_path, bos_token_id, eos_token_id = "", 0, 1
        chat_template, special_tokens_map = template, tokenizer.special_tokens_map

        def __call__(self, text: str, **options: Any) -> Any:
            seen.append(len(text))
            return tokenizer(text, **options)

    with pytest.raises(PromptTooLong, match=r"characters; the context holds 256"):
        prepare(text_request(text * 2**22), Watched(), 256, VOCABULARY)
    assert seen == []
    with pytest.raises(PromptTooLong, match="are more than"):
        prepare(text_request(text * (2**21 // len(text))), Watched(), 65536, VOCABULARY)
    assert sum(seen) <= PIECE


def test_counting_a_long_prompt_hears_a_stop() -> None:
    """F01: between two pieces; what a tokenizer drops would otherwise be counted to its end."""
    told = iter([False, False, True])

    def check() -> None:
        if next(told):
            raise Stopped()

    with pytest.raises(Stopped):
        prepare(text_request("x" * 2**20), byte_tokenizer(), 2**21, VOCABULARY, check)


def test_pieces_never_refuse_what_fits() -> None:
    text = "x" * (PIECE + 40)
    assert len(prepare(text_request(text), byte_tokenizer(), len(text) + 1, VOCABULARY).ids) == len(text)


def test_a_tokenizer_that_breaks_is_said() -> None:
    class Breaking:
        chat_template, name_or_path, bos_token_id = None, "/models/some", None

        def __call__(self, *unused: object, **also: object) -> None:
            raise KeyError("unk_token")

    with pytest.raises(BrokenModel, match="tokenizer of some"):
        encode([ChatMessage("user", "b")], Breaking())


@pytest.mark.parametrize(
    ("tokenizer_end", "config_end", "generation_end", "expected"),
    [(1, None, None, (1,)), (1, 2, [3, 4], (1, 2, 3, 4)), (None, [5], 5, (5,)), (None, None, None, ())],
)
def test_any_of_all_end_tokens_ends_an_answer(
    tokenizer_end: Any, config_end: Any, generation_end: Any, expected: tuple[int, ...]
) -> None:
    holders = [SimpleNamespace(eos_token_id=each) for each in (tokenizer_end, config_end, generation_end)]
    assert end_tokens(*holders) == expected


def test_the_end_of_a_turn_in_the_template_ends_an_answer() -> None:
    tokenizer = byte_tokenizer("{{ messages[0]['content'] }}<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") in end_tokens(tokenizer)
