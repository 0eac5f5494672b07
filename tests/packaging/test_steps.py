"""Steps are done once, a failed one is named, and the next run goes on there."""

from pathlib import Path

import pytest
from steps import Ledger, Step, StepFailed, run_steps


class Work:
    """Steps that write down their names, and fail where told."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails: set[str] = set()

    def step(self, name: str, key: str = "1", optional: bool = False) -> Step:
        def act() -> None:
            if name in self.fails:
                raise StepFailed(f"{name} broke", "mend it")
            self.done.append(name)

        return Step(name, f"the {name}", key, act, optional)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "env" / "setup.json")


def test_steps_run_in_order_and_say_their_number(work: Work, ledger: Ledger) -> None:
    said: list[str] = []
    assert run_steps([work.step("one"), work.step("two")], ledger, said.append) == 2
    assert work.done == ["one", "two"]
    assert said == ["Step 1 of 2: the one", "Step 2 of 2: the two"]


def test_a_second_run_does_nothing_and_says_nothing(work: Work, ledger: Ledger) -> None:
    steps = [work.step("one"), work.step("two")]
    run_steps(steps, ledger, print)
    said: list[str] = []
    assert run_steps(steps, ledger, said.append) == 0
    assert work.done == ["one", "two"]
    assert said == []


@pytest.mark.parametrize("broken", ["one", "two", "three"])
def test_a_failed_step_is_named_and_the_next_run_resumes_there(work: Work, ledger: Ledger, broken: str) -> None:
    names = ["one", "two", "three"]
    steps = [work.step(name) for name in names]
    work.fails = {broken}
    with pytest.raises(StepFailed, match=rf"Step {names.index(broken) + 1} of 3 \(the {broken}\) failed") as raised:
        run_steps(steps, ledger, print)
    assert raised.value.hint == "mend it"
    assert work.done == names[: names.index(broken)]
    work.fails, work.done = set(), []
    run_steps(steps, ledger, print)
    assert work.done == names[names.index(broken) :]


def test_a_stop_leaves_the_finished_steps_recorded(work: Work, ledger: Ledger) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    steps = [work.step("one"), Step("two", "the two", "1", stopped)]
    with pytest.raises(KeyboardInterrupt):
        run_steps(steps, ledger, print)
    assert ledger.read() == {"one": "1"}


def test_only_a_step_with_a_new_key_is_done_again(work: Work, ledger: Ledger) -> None:
    run_steps([work.step("one"), work.step("two", key="old")], ledger, print)
    work.done = []
    run_steps([work.step("one"), work.step("two", key="new")], ledger, print)
    assert work.done == ["two"]


def test_steps_after_a_fresh_environment_are_done_again(work: Work, ledger: Ledger) -> None:
    run_steps([work.step("one"), work.step("two")], ledger, print)
    work.done = []
    run_steps([Step("one", "the one", "other", ledger.forget), work.step("two")], ledger, print)
    assert work.done == ["two"]


def test_an_optional_step_that_fails_is_said_and_tried_again(work: Work, ledger: Ledger) -> None:
    work.fails = {"extra"}
    steps = [work.step("extra", optional=True), work.step("last")]
    said: list[str] = []
    run_steps(steps, ledger, said.append)
    assert any("extra broke" in words and "mend it" in words for words in said)
    assert ledger.read() == {"last": "1"}


@pytest.mark.parametrize("text", ["", "{", "[]", '"words"', "\x00"])
def test_a_broken_ledger_counts_as_empty(ledger: Ledger, text: str) -> None:
    ledger.record("one", "1")
    ledger.path.write_text(text)
    assert ledger.read() == {}
    ledger.record("two", "1")
    assert ledger.read() == {"two": "1"}
