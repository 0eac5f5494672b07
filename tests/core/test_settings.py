"""H08: whatever is in the settings file, the program starts and nothing of the person's is lost."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest

from layerlight.core.device import Device, Machine
from layerlight.core.errors import StoreFailed
from layerlight.core.settings import LARGEST_FILE, Settings, keep_aside, read_settings, write_settings

FULL = Settings(
    theme="dark",
    last_folder="/models/模型 é 📦 100%#?",
    recent_folders=("/models/模型 é 📦 100%#?", "/b"),
    limits=(("cpu", 2**33), ("cuda:0", 0)),
    context=2048,
    dtype="float32",
    quantization="nf4",
    attention="eager",
    offload_folder="/fast",
    system="Be brief.",
    max_new_tokens=7,
    temperature=0.0,
    top_p=0.9,
    top_k=40,
    repetition_penalty=1.1,
    seed=42,
    engine_environment=False,
    window_geometry="AdnQ",
    window_state="AAAA",
    unknown=(("from_the_future", '{"a": [1, null]}'),),
    strategy="most-on-gpu",
    kv="fp8",
    notifications=False,
    reduced_motion=True,
    prompt_lookup=8,
)


def test_every_setting_comes_back(tmp_path: Path) -> None:
    assert all(getattr(FULL, field.name) != getattr(Settings(), field.name) for field in fields(Settings))
    path = tmp_path / "deep" / "settings.json"
    write_settings(path, FULL)
    assert read_settings(path) == (FULL, "")
    assert [entry.name for entry in path.parent.iterdir()] == ["settings.json"]


def test_a_first_start_has_no_notice(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "settings.json") == (Settings(), "")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"theme": "da', b"[]", b"null", b'"text"', b"12", b"\xff\xfe\x00\x01", b"\0" * 400, b"[" * 200_000],
    ids=["empty", "brace", "half", "list", "null", "text", "number", "no utf-8", "nuls", "deep"],
)
def test_h08_a_broken_file_is_kept_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    settings, notice = read_settings(path)
    assert settings == Settings()
    (aside,) = tmp_path.glob("settings.json.broken-*")
    assert aside.read_bytes() == content
    assert aside.name in notice
    assert not path.exists()
    write_settings(path, settings)
    assert read_settings(path) == (Settings(), "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("theme", 3),
        ("limits", {"cpu": "8GiB"}),
        ("limits", [["cpu"]]),
        ("context", "many"),
        ("recent_folders", "one"),
        ("temperature", None),
        ("engine_environment", "yes"),
        ("window_geometry", [1]),
        ("theme", "pink"),
        ("limits", [["cpu", -1]]),
        ("context", -1),
        ("dtype", "zzz"),
        ("quantization", "zz"),
        ("attention", "none"),
        ("strategy", "slowest"),
        ("kv", "fp1"),
        ("max_new_tokens", 0),
        ("temperature", -4),
        ("temperature", float("nan")),
        ("top_p", 1.5),
        ("top_k", -1),
        ("repetition_penalty", 0),
        ("seed", -1),
        ("prompt_lookup", 10**6),
    ],
)
def test_h08_one_wrong_value_costs_no_other(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "settings.json"
    write_settings(path, FULL)
    data = json.loads(path.read_text("utf-8")) | {key: value}
    path.write_text(json.dumps(data), "utf-8")
    settings, notice = read_settings(path)
    assert settings == replace(FULL, **{key: getattr(Settings(), key)})
    assert key in notice
    (aside,) = tmp_path.glob("settings.json.broken-*")
    assert aside.read_text("utf-8") == json.dumps(data)


def test_h08_a_folder_in_the_file_s_place_is_moved_too(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.mkdir()
    settings, notice = read_settings(path)
    assert settings == Settings()
    assert notice
    write_settings(path, FULL)
    assert read_settings(path) == (FULL, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_h08_a_pipe_in_the_file_s_place_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    os.mkfifo(path)
    settings, notice = read_settings(path)
    assert settings == Settings()
    assert "not a plain file" in notice


def test_h08_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(" " * LARGEST_FILE + '{"theme": "dark"}')
    settings, notice = read_settings(path)
    assert settings == Settings()
    assert "larger than 4 MiB" in notice


def test_h08_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.json"
    write_settings(path, FULL)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFailed, match="No space left"):
        write_settings(path, Settings())
    monkeypatch.undo()
    assert read_settings(path) == (FULL, "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["settings.json"]


def test_h08_files_set_aside_never_replace_each_other(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    for content in ("1", "2", "3"):
        path.write_text(content)
        keep_aside(path)
    assert sorted(aside.read_text() for aside in tmp_path.iterdir()) == ["1", "2", "3"]


def test_a_folder_name_that_is_no_unicode_survives(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    odd = replace(Settings(), last_folder="/models/\udce9t\udce9")
    write_settings(path, odd)
    assert read_settings(path) == (odd, "")


def test_recent_folders_hold_each_once_newest_first() -> None:
    settings = Settings()
    for number in (*range(20), 15):
        settings = settings.with_folder(f"/{number}")
    assert settings.last_folder == "/15"
    assert settings.recent_folders[:3] == ("/15", "/19", "/18")
    assert len(settings.recent_folders) == len(set(settings.recent_folders)) == 12


def test_a19_limits_of_another_machine_are_told_apart() -> None:
    machine = Machine((Device("cpu", "cpu", "RAM"), Device("disk", "disk", "disk")))
    settings = replace(Settings(), limits=(("cuda:0", 5), ("cpu", 7), ("-1", 1), ("gpu", 2)))
    assert settings.limits_on(machine) == ((("cpu", 7),), ("cuda:0", "-1", "gpu"))
