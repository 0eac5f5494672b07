"""A model's chat template, rendered within bounds: it comes from the folder, so it may loop or grow without end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.visitor import NodeTransformer

from layerlight.core.errors import BadRequest, BrokenModel, LayerlightError

MOST_STEPS = 1_000_000
"""Turns of loops and calls in one rendering: a long conversation in a wordy template takes some thousands."""
MOST_GROWTH = 2**20
"""Characters that a template may add to those of its conversation."""
MOST_BITS = 4096
"""Of a number that a template computes."""
CALL = 5
"""Steps that one call counts for."""
LONGEST_TEMPLATE = 2**20
"""Characters; the longest of public models has 40,000."""

_STEPS = "layerlight_steps"
_JOINED = "layerlight_joined"
_WIDE = re.compile(r"\d{6}")
_COSTLY = frozenset({"+", "*", "**", "%"})


class TooMuch(Exception):
    """The template passed a bound."""


class Bounds:
    """Counts what a rendering does, and hears a stop while it does it."""

    def __init__(self) -> None:
        self.most = MOST_GROWTH
        """Characters of any text in it."""
        self._check: Callable[[], None] = lambda: None
        self._steps = 0

    def begin(self, check: Callable[[], None], characters: int) -> None:
        """For the next rendering, of a conversation with so many characters."""
        self._check, self._steps, self.most = check, 0, 4 * characters + MOST_GROWTH

    def step(self, steps: int = 1) -> None:
        """Raises TooMuch for one step too many, and what `check` raises."""
        self._steps += steps
        self._check()
        if self._steps > MOST_STEPS:
            raise TooMuch(f"it takes more than {MOST_STEPS:,} steps")

    def steps(self, values: Iterable[Any]) -> Iterator[Any]:
        """The same values, each a step."""
        for value in values:
            self.step()
            yield value

    def joined(self, values: Sequence[Any]) -> str:
        return str(self.sized("".join(map(str, values))))

    def sized(self, value: Any) -> Any:
        """The same value. Raises TooMuch where it is larger than any prompt of this conversation."""
        if isinstance(value, (str, bytes, list, tuple, dict)) and len(value) > self.most:
            raise TooMuch(f"it makes more than {self.most:,} characters")
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise TooMuch("it computes a number that is too large")
        return value

    def binop(self, left: Any, operator: str, right: Any) -> None:
        """Raises TooMuch where the result would be too large, before it is computed."""
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            if abs(right) * left.bit_length() > MOST_BITS:
                raise TooMuch("it computes a number that is too large")
        elif operator == "%" and isinstance(left, str) and _WIDE.search(left):
            raise TooMuch("it asks for a text that is too long")
        elif operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, (str, list, tuple)) and isinstance(times, int) and len(value) * times > self.most:
                    raise TooMuch(f"it makes more than {self.most:,} characters")

    def arguments(self, values: Iterable[Any]) -> None:
        """Raises TooMuch for a width that no filter could fill within bounds."""
        if any(isinstance(value, int) and abs(value) > self.most for value in values):
            raise TooMuch("it asks for a text that is too long")


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tokens: Mapping[str, str],
    check: Callable[[], None],
    name: str,
) -> str:
    """The prompt of this conversation, ending where the answer begins. `tokens` are the special ones by their names.

    Raises BadRequest where the template refuses the conversation, BrokenModel where it is no template or passes a
    bound, and what `check` raises: it is called at every step.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise _broken(name, f"it has {len(template):,} characters")
    refusal: LayerlightError
    try:
        compiled, bounds = _compiled(template)
        bounds.begin(check, sum(len(str(message["content"])) for message in messages))
        pieces: list[str] = []
        length = 0
        for piece in compiled.generate(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **tokens,
        ):
            bounds.step()
            length += len(piece)
            pieces.append(piece)
            if length > bounds.most:
                raise TooMuch(f"it makes more than {bounds.most:,} characters")
        return "".join(pieces)
    except TemplateSyntaxError as error:
        refusal = _broken(name, f"line {error.lineno} of it is no template ({error.message})")
    except SecurityError:
        refusal = _broken(name, "it reaches for what no template may touch")
    except (TemplateError, TypeError, ValueError, KeyError) as error:
        words = str(error).strip().splitlines()
        refusal = BadRequest(
            f"The chat template of {name} refuses this conversation: {words[0] if words else type(error).__name__}",
            hint="Some models take no system message, and most want user and assistant in turn.",
        )
    except TooMuch as error:
        refusal = _broken(name, str(error))
    except ArithmeticError:
        refusal = _broken(name, "it divides by nothing or computes a number that is too large")
    except RecursionError:
        refusal = _broken(name, "it calls itself without end")
    except MemoryError:
        refusal = _broken(name, "it needs more memory than there is")
    except (LookupError, AttributeError, AssertionError, RuntimeError) as error:
        refusal = _broken(name, f"it breaks off ({type(error).__name__})")
    raise refusal


@lru_cache(maxsize=4)
def wants_parts(template: str) -> bool:
    """Whether this template loses a message that is a text, and finds it in a list of parts: what many templates of
    models that also see are written for."""
    return not _says(template, _PROBE) and _says(template, as_parts(_PROBE))


def as_parts(text: str) -> list[dict[str, str]]:
    """A message's content as a list of parts, of which this text is the only one."""
    return [{"type": "text", "text": text}]


_PROBE = "layerlight"


def _says(template: str, content: Any) -> bool:
    try:
        return _PROBE in render(template, [{"role": "user", "content": content}], {}, lambda: None, "")
    except LayerlightError:
        return False


def _broken(name: str, why: str) -> BrokenModel:
    return BrokenModel(
        f"The chat template of {name} can't be used: {why}.",
        hint="Download the model's tokenizer_config.json and chat_template.jinja again, from a source you trust.",
    )


@lru_cache(maxsize=4)
def _compiled(template: str) -> tuple[Template, Bounds]:
    """transformers' own environment, so that every public template means the same, with bounds put into it."""
    from transformers.utils.chat_template_utils import _cached_compile_jinja_template

    environment: Environment = _cached_compile_jinja_template("").environment
    bounds = Bounds()
    _bind(environment, bounds)
    tree = _Bounded().visit(environment.parse(template))
    return environment.from_string(tree), bounds


def _bind(environment: Any, bounds: Bounds) -> None:
    environment.globals.pop("lipsum", None)
    for name, function in tuple(environment.filters.items()):
        environment.filters[name] = _watched(function, bounds)
    environment.filters[_STEPS] = bounds.steps
    environment.filters[_JOINED] = bounds.joined
    environment.intercepted_binops = _COSTLY
    calculate, call = environment.call_binop, environment.call

    def binop(context: Any, operator: str, left: Any, right: Any) -> Any:
        bounds.binop(left, operator, right)
        return bounds.sized(calculate(context, operator, left, right))

    def watched_call(context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        bounds.step(CALL)
        bounds.arguments((*args, *kwargs.values()))
        return bounds.sized(call(context, function, *args, **kwargs))

    environment.call_binop, environment.call = binop, watched_call


def _watched(function: Callable[..., Any], bounds: Bounds) -> Callable[..., Any]:
    @wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        bounds.step(CALL)
        bounds.arguments((*args[1:], *kwargs.values()))
        return bounds.sized(function(*args, **kwargs))

    return watched


class _Bounded(NodeTransformer):
    """Counts each turn of a loop, and looks at each text that is put together."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _STEPS)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    filtered = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    if node.environment is not None:
        filtered.set_environment(node.environment)
    return filtered
