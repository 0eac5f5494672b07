"""The choice of torch's build, over a table of machines."""

import subprocess

import pytest
import torch_build
from torch_build import (
    TORCH_INDEX,
    NoTorchBuild,
    SystemFacts,
    TorchBuild,
    attempts,
    choose_torch_build,
    gfx_name,
    parse_nvidia,
    read_facts,
)

LINUX = SystemFacts("Linux", "x86_64")
NEW_DRIVER, OLD_DRIVER, ANCIENT_DRIVER = (580, 65, 6), (550, 54), (470, 256)


def linux(**facts: object) -> SystemFacts:
    return SystemFacts("Linux", "x86_64", **facts)  # type: ignore[arg-type]


def nvidia(system: str, driver: tuple[int, ...] | None, capability: tuple[int, int] | None) -> SystemFacts:
    machine = "AMD64" if system == "Windows" else "x86_64"
    return SystemFacts(system, machine, nvidia=True, nvidia_driver=driver, compute_capability=capability)


@pytest.mark.parametrize(
    ("facts", "name", "label"),
    [
        (LINUX, "cpu", "cpu"),
        (SystemFacts("Linux", "aarch64"), "cpu", "cpu"),
        (SystemFacts("Windows", "AMD64"), "cpu", ""),
        (SystemFacts("Windows", "ARM64"), "cpu", "cpu"),
        (SystemFacts("Darwin", "arm64"), "cpu", ""),
        (nvidia("Linux", NEW_DRIVER, (8, 9)), "cuda", "cu130"),
        (nvidia("Windows", NEW_DRIVER, (8, 9)), "cuda", "cu130"),
        (nvidia("Linux", None, None), "cuda", "cu130"),
        (nvidia("Windows", OLD_DRIVER, (8, 6)), "cuda", "cu126"),
        (nvidia("Linux", NEW_DRIVER, (6, 1)), "cuda", "cu126"),
        (nvidia("Linux", OLD_DRIVER, (12, 0)), "cuda", "cu130"),
        (nvidia("Linux", ANCIENT_DRIVER, (7, 5)), "cpu", "cpu"),
        (nvidia("Linux", NEW_DRIVER, (3, 5)), "cpu", "cpu"),
        (SystemFacts("Linux", "aarch64", nvidia=True, nvidia_driver=NEW_DRIVER), "cuda", "cu130"),
        (linux(amd_targets=("gfx1100",)), "rocm", "rocm7.2"),
        (linux(amd_targets=("gfx1036", "gfx942")), "rocm", "rocm7.2"),
        (linux(amd_targets=("gfx1036",)), "cpu", "cpu"),
        (linux(nvidia=True, nvidia_driver=NEW_DRIVER, amd_targets=("gfx1100",)), "cuda", "cu130"),
        (linux(intel_gpu=True), "xpu", "xpu"),
        (SystemFacts("Windows", "AMD64", intel_gpu=True), "xpu", "xpu"),
        (linux(amd_targets=("gfx1201",), intel_gpu=True), "rocm", "rocm7.2"),
    ],
)
def test_the_build_follows_the_machine(facts: SystemFacts, name: str, label: str) -> None:
    build = choose_torch_build(facts)
    assert (build.name, build.label) == (name, label)


@pytest.mark.parametrize(
    ("facts", "wish", "label"),
    [
        (nvidia("Linux", NEW_DRIVER, (8, 9)), "cpu", "cpu"),
        (nvidia("Windows", NEW_DRIVER, (8, 9)), "cpu", ""),
        (LINUX, "cuda", "cu130"),
        (LINUX, "rocm", "rocm7.2"),
        (LINUX, "xpu", "xpu"),
        (SystemFacts("Darwin", "arm64"), "cpu", ""),
    ],
)
def test_a_wish_overrides_what_was_found(facts: SystemFacts, wish: str, label: str) -> None:
    assert choose_torch_build(facts, wish).label == label


@pytest.mark.parametrize(
    ("facts", "wish", "word"),
    [
        (SystemFacts("Darwin", "x86_64"), None, "Intel Mac"),
        (SystemFacts("Darwin", "arm64"), "cuda", "Leave --torch out"),
        (SystemFacts("Windows", "AMD64"), "rocm", "Linux"),
        (SystemFacts("Linux", "aarch64"), "xpu", "x86_64"),
    ],
)
def test_a_build_that_does_not_exist_is_said(facts: SystemFacts, wish: str | None, word: str) -> None:
    with pytest.raises(NoTorchBuild, match=word):
        choose_torch_build(facts, wish)


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (nvidia("Linux", OLD_DRIVER, (8, 6)), "CUDA 12.6"),
        (nvidia("Linux", NEW_DRIVER, (6, 1)), "CUDA 12.6"),
        (nvidia("Linux", OLD_DRIVER, (12, 0)), "580"),
        (nvidia("Linux", ANCIENT_DRIVER, (7, 5)), "--torch cuda"),
        (linux(amd_targets=("gfx1036",)), "gfx1036"),
    ],
)
def test_a_choice_that_may_surprise_says_why(facts: SystemFacts, word: str) -> None:
    assert word in choose_torch_build(facts).note


def test_a_machine_without_a_gpu_needs_no_note() -> None:
    assert choose_torch_build(LINUX).note == ""


def test_the_cpu_build_is_asked_of_pip_first_then_of_pytorch_then_of_anyone() -> None:
    first, second, third = attempts(TorchBuild("cpu", "cpu"))
    assert first.arguments == ("torch==2.13.0+cpu",)
    assert second.arguments == ("torch==2.13.0+cpu", "--extra-index-url", f"{TORCH_INDEX}cpu")
    assert third.arguments == ("torch==2.13.0",)
    assert "several GB" in third.words


@pytest.mark.parametrize("label", ["cu130", "cu126", "rocm7.2", "xpu"])
def test_a_gpu_build_is_never_replaced_by_another(label: str) -> None:
    ways = attempts(TorchBuild("gpu", label))
    assert {way.arguments[0] for way in ways} == {f"torch==2.13.0+{label}"}


def test_where_the_usual_wheel_is_right_no_index_is_named() -> None:
    assert [way.arguments for way in attempts(TorchBuild("cpu", ""))] == [("torch==2.13.0",)]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("580.65.06, 8.9\n", ((580, 65, 6), (8, 9))),
        ("550.54.14, 6.1\n550.54.14, 12.0\n", ((550, 54, 14), (12, 0))),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", (None, None)),
        ('Field "compute_cap" is not a valid field to query.\n', (None, None)),
        ("", (None, None)),
    ],
)
def test_nvidia_smi_is_read_or_nothing_is_claimed(text: str, answer: object) -> None:
    assert parse_nvidia(text) == answer


@pytest.mark.parametrize(
    ("number", "name"), [(110000, "gfx1100"), (90010, "gfx90a"), (90402, "gfx942"), (120001, "gfx1201")]
)
def test_amd_targets_are_named_as_the_field_names_them(number: int, name: str) -> None:
    assert gfx_name(number) == name


def test_reading_this_machine_never_raises() -> None:
    facts = read_facts()
    assert facts.system
    assert facts.machine


@pytest.mark.parametrize("failure", [OSError("no driver"), subprocess.TimeoutExpired("nvidia-smi", 20)])
def test_an_nvidia_smi_that_fails_or_hangs_claims_nothing(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    """H15: a broken GPU probe must not end the set-up."""

    def run(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(subprocess, "run", run)
    assert torch_build._ask_nvidia() == (None, None)
