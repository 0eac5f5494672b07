"""Which weight files a loader would open in a folder, and whether they are all there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from layerlight.core.inspecting.plain_file import is_plain, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """Files relative to the folder, in the order they are opened, with what is wrong or odd about them in words."""

    files: tuple[str, ...] = ()
    pickled: bool = False
    weight_map: tuple[tuple[str, str], ...] = ()
    """(tensor, file) as the index says; empty without one."""
    problems: tuple[tuple[str, str], ...] = ()
    """(problem, hint)."""
    notes: tuple[str, ...] = ()


def find_weight_files(folder: Path, names: frozenset[str], config: Mapping[str, object]) -> WeightFiles:
    """The weights that transformers opens: it takes the first of a named file, one safetensors file, safetensors
    shards, one pickle and pickle shards. `names` are the folder's entries.
    """
    named = config.get("transformers_weights")
    if isinstance(named, str) and named:
        if _leaves(named) or not is_plain(folder / named):
            return WeightFiles(problems=((f"config.json asks for {named}, which is not there.", "Download it."),))
        return _sharded(folder, names, named) if named.endswith(".index.json") else WeightFiles((named,))
    if is_plain(folder / SINGLE):
        return WeightFiles((SINGLE,), notes=_unused_index(folder, names))
    if is_plain(folder / INDEX):
        return _sharded(folder, names, INDEX)
    if is_plain(folder / PICKLE):
        return WeightFiles((PICKLE,), pickled=True)
    if is_plain(folder / PICKLE_INDEX):
        return _sharded(folder, names, PICKLE_INDEX)
    return WeightFiles(problems=(_nothing_to_open(folder, names),))


def _sharded(folder: Path, names: frozenset[str], index: str) -> WeightFiles:
    pickled = index == PICKLE_INDEX
    try:
        weight_map = _read_index(folder / index)
    except (OSError, ValueError) as error:
        return WeightFiles(problems=((f"{index} can't be read: {error}.", "Download it again."),))
    files = tuple(sorted(set(weight_map.values())))
    outside = [file for file in files if _leaves(file)]
    if outside or not files:
        problem = f"{index} names {outside[0]}, outside its folder." if outside else f"{index} names no file."
        return WeightFiles(problems=((problem, "Download it again."),))
    there = tuple(file for file in files if is_plain(folder / file))
    missing = [file for file in files if file not in there]
    problems = (_missing(index, files, missing, _complete_set(names, frozenset(files))),) if missing else ()
    return WeightFiles(there, pickled, tuple(weight_map.items()), problems)


def _read_index(path: Path) -> dict[str, str]:
    content = read_json(path, mark=False)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise ValueError("it has no weight_map")
    return weight_map


def _leaves(file: str) -> bool:
    parts = PurePosixPath(file.replace("\\", "/"))
    return parts.is_absolute() or ".." in parts.parts or ":" in file


def _missing(index: str, files: tuple[str, ...], missing: list[str], other: tuple[str, ...]) -> tuple[str, str]:
    listed = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
    if other:
        return (
            f"{index} is stale: it names {listed}, not there, while a complete set of {len(other)} other files is.",
            f"Remove {index} if the other set is the model, and download the index that belongs to it.",
        )
    return (
        f"{len(missing)} of {len(files)} weight files are missing: {listed}.",
        "Finish the download, then open the folder again.",
    )


def _complete_set(names: frozenset[str], besides: frozenset[str]) -> tuple[str, ...]:
    """Numbered shards that make a whole set and that the index does not name."""
    sets: dict[tuple[str, int], list[str]] = {}
    for name in sorted(names - besides):
        if match := _SHARD.fullmatch(name):
            sets.setdefault((match["stem"], int(match["count"])), []).append(name)
    return next((tuple(files) for (_, count), files in sets.items() if len(files) == count), ())


def _unused_index(folder: Path, names: frozenset[str]) -> tuple[str, ...]:
    if INDEX not in names:
        return ()
    try:
        files = set(_read_index(folder / INDEX).values())
    except (OSError, ValueError):
        return (f"{INDEX} can't be read and is not needed: {SINGLE} is complete by itself.",)
    if files <= {SINGLE}:
        return ()
    return (f"{INDEX} is stale: it names {len(files)} other files. {SINGLE} is complete by itself and is used.",)


def _nothing_to_open(folder: Path, names: frozenset[str]) -> tuple[str, str]:
    """Why there is nothing to open, by what lies there instead."""
    dangling = [name for name in (SINGLE, INDEX, PICKLE, PICKLE_INDEX) if (folder / name).is_symlink()]
    if dangling:
        return f"{dangling[0]} is a link to a file that is gone.", "Download the model again."
    if whole := _complete_set(names, frozenset()):
        return f"There are {len(whole)} numbered weight files but no {INDEX}.", f"Download {INDEX} too."
    partial = sorted(name for name in names if name.endswith((".incomplete", ".part", ".crdownload", ".aria2")))
    if partial:
        return f"The weights are still being downloaded ({partial[0]}).", "Finish the download."
    shards = sorted(name for name in names if _SHARD.fullmatch(name))
    if shards:
        return f"Only some of the weight files are there ({shards[0]} …), and no {INDEX}.", "Finish the download."
    for suffix, library in ((".h5", "TensorFlow"), (".msgpack", "Flax"), (".pth", "the original torch code")):
        if found := sorted(name for name in names if name.endswith(suffix)):
            return f"The weights are only there for {library} ({found[0]}).", "Download the safetensors files."
    if found := sorted(name for name in names if name.endswith(".safetensors")):
        return f"{found[0]} is not a name that is looked for.", f"Rename it {SINGLE} if it holds the whole model."
    return "There are no weights in this folder.", "Download the weight files too."
