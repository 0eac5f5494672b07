"""`--kv-cache fp8`: told of the plan, refused in one sentence, offered as a fix, and taken by `run`."""

from __future__ import annotations

import pytest

from tests.terminal.conftest import Command
from tests.terminal.fake_engine import FakeEngine

CARD = "laptop-cpu-16gb"


def test_the_plan_tells_it_and_what_it_saves(layerlight: Command) -> None:
    words = ("plan", "llama-3.1-8b", "--machine", CARD, "--context", 32768)
    usual, packed = (layerlight(*words, *more, "--json").found for more in ((), ("--kv-cache", "fp8")))
    assert (usual["kv_cache"], packed["kv_cache"]) == (None, "fp8")
    before, after = (sum(found["predicted"]["kv"].values()) for found in (usual, packed))
    assert 0.5 * before < after < 0.51 * before
    said = layerlight(*words, "--kv-cache", "fp8")
    assert said.code == 0
    assert "context 32768, KV cache in fp8" in said.out
    assert "less at the peak" in said.out


@pytest.mark.parametrize(("model", "words"), [("deepseek-v3", "latents"), ("gemma-3-4b", "window")])
def test_families_that_can_not_are_refused_in_words(layerlight: Command, model: str, words: str) -> None:
    said = layerlight("plan", model, "--machine", CARD, "--kv-cache", "fp8")
    assert said.code == 2
    assert "can't be kept in fp8" in said.err
    assert words in said.err


def test_another_word_is_refused(layerlight: Command) -> None:
    assert layerlight("plan", "llama-3.1-8b", "--kv-cache", "int3").code == 2


def test_a_table_leaves_alone_what_can_not(layerlight: Command) -> None:
    cells = layerlight("plan", "gemma-3-4b", "--table", "--kv-cache", "fp8", "--json").found["cells"]
    assert [cell for cell in cells if "can't be kept" in cell["words"]] == []


def test_as_a_fix_it_comes_with_the_option_that_applies_it(layerlight: Command) -> None:
    words = ("plan", "llama-3.1-8b", "--machine", "laptop-cpu-32gb", "--context", 65536, "--limit", "disk=0B")
    words = (*words, "--limit", "cpu=22GiB")
    said = layerlight(*words, "--json").found
    assert not said["fits"]
    (fix,) = [each for each in said["fixes"] if each["options"] == ["--kv-cache fp8"]]
    assert "95 of 100" in fix["price"]
    again = layerlight(*words, "--kv-cache", "fp8", "--json").found
    assert again["fits"]
    assert again["predicted"]["seconds"]["per_token"] == pytest.approx(fix["seconds_per_token"])


def test_run_loads_with_it(layerlight: Command, tiny_folder: object, engine: FakeEngine) -> None:
    found = layerlight("run", tiny_folder, "--prompt", "hello", "--kv-cache", "fp8", "--json").found
    assert found["kv_cache"] == "fp8"
    assert [each.kv for each in engine.loads] == ["fp8"]
