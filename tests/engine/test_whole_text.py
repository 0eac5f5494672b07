"""Characters are shown when they are whole, and what was shown stays."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from layerlight.engine.whole_text import WholeText
from tests.engine.tiny_models import byte_tokenizer

BYTES = byte_tokenizer()
PROMPT = BYTES("Say something:")["input_ids"]


@pytest.mark.parametrize("text", ["🤖", "漢字", "é", "a🤖b漢c é!", "👩‍👩‍👧 family", " leading and  double spaces \n"])
def test_no_half_characters(text: str) -> None:
    """F08: every prefix that was shown is a prefix of the text; � never shows."""
    whole = WholeText(BYTES, PROMPT)
    shown = ""
    for token in BYTES(text)["input_ids"]:
        shown += whole.add(token)
        assert "�" not in shown
        assert text.startswith(shown)
    assert shown + whole.finish() == text


def test_a_real_cut_at_the_end_shows_as_one() -> None:
    """F08: the answer ended in the middle of an emoji."""
    whole = WholeText(BYTES, PROMPT)
    shown = "".join(whole.add(token) for token in BYTES("ok 🤖")["input_ids"][:-2])
    assert shown == "ok "
    assert whole.finish().strip("�") == ""


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=12))
def test_pieces_make_the_whole(text: str) -> None:
    """F08: for any text, what was shown piece by piece is the text."""
    whole = WholeText(BYTES, PROMPT)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert "".join(whole.add(token) for token in BYTES(text)["input_ids"]) + whole.finish() == text


def test_the_first_word_keeps_its_space() -> None:
    """SentencePiece drops the space before a text's first word: the prompt's last words are decoded with it."""
    inner = Tokenizer(models.WordLevel({"▁is": 0, "▁Paris": 1, "▁now": 2, "<unk>": 3}, unk_token="<unk>"))
    inner.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    whole = WholeText(tokenizer, [0])
    assert [whole.add(1), whole.add(2)] == [" Paris", " now"]


def test_special_tokens_are_not_shown() -> None:
    whole = WholeText(BYTES, PROMPT)
    assert "".join([whole.add(token) for token in [*BYTES("ok")["input_ids"], 1]]) + whole.finish() == "ok"
