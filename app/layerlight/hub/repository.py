"""A model on the Hugging Face Hub → Model: its config and the headers of its safetensors files, no weight."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SafetensorsParsingError,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from layerlight.core.errors import BadRequest, BrokenModel, DownloadFailed, NotAModel
from layerlight.core.inspecting.config_file import LARGEST_CONFIG, ConfigFile, parse_config
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.inspecting.safetensors_header import described_tensor
from layerlight.core.inspecting.weight_files import INDEX, SINGLE
from layerlight.core.inspection import model_from_headers
from layerlight.core.model import Model, Tensor

PREFIX = "hub:"
TIMEOUT = 5.0
"""Seconds that one answer may let wait."""
FIRST_ANSWER = 8.0
"""Seconds in all for the first: looking for a host's address has no limit of its own."""
LARGEST_INDEX = 100_000_000
MOST_FILES = 1_000
AT_ONCE = 8
"""Headers asked for at the same time."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)
_NETWORK_FAILURES: tuple[type[Exception], ...] = (OSError, *(each for each in HfHubHTTPError.__mro__[1:2]))
"""A file system's failures and those of the HTTP client, whichever it is: the Hub's errors derive from it."""

_Answer = TypeVar("_Answer")


def hub_model(name: str) -> tuple[Model, Mapping[str, Any]]:
    """(the model, its config) for `org/name`. It can be planned and has no folder.

    Raises BadRequest for what is no name, NotAModel where there is no such model or no config, DownloadFailed without
    a network or permission, and BrokenModel for files that contradict themselves.
    """
    if not _NAME.fullmatch(name) or "--" in name or ".." in name:
        raise BadRequest(f"“{name}” is no name on the Hub.", hint="Write hub:ORGANISATION/NAME.")
    with _told(name):
        config = parse_config(_first_answer(lambda: _file(name, "config.json", LARGEST_CONFIG)))
        if config.problem:
            raise BrokenModel(f"{name}: {config.problem}", hint="Choose another model.")
        headers = _headers(name)
    return _model(config, headers, name), config.content


def _model(config: ConfigFile, headers: Mapping[str, tuple[Tensor, ...]], name: str) -> Model:
    if not headers:
        found = model_from_config(config.content, name)
        return replace(found, notes=(*found.notes, f"{name} has no safetensors files on the Hub."))
    found = model_from_headers(config, headers, name)
    return replace(found, notes=(*found.notes, "Its sizes are those in the headers of its files on the Hub."))


def _headers(name: str) -> dict[str, tuple[Tensor, ...]]:
    """The tensors of each safetensors file, as the loader would open them; empty where there are none."""
    try:
        return {SINGLE: _header(name, SINGLE)}
    except EntryNotFoundError:
        pass
    try:
        files = _listed(_file(name, INDEX, LARGEST_INDEX))
    except EntryNotFoundError:
        return {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(files, pool.map(lambda file: _header(name, file), files), strict=True))


def _listed(index: bytes) -> tuple[str, ...]:
    try:
        files = sorted(set(json.loads(index)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenModel(f"{INDEX} has no weight_map.", hint="Choose another model.") from error
    if not 0 < len(files) <= MOST_FILES or not all(isinstance(file, str) and file for file in files):
        raise BrokenModel(f"{INDEX} names no files, or far too many.", hint="Choose another model.")
    return tuple(files)


def _header(name: str, file: str) -> tuple[Tensor, ...]:
    found = HfApi().parse_safetensors_file_metadata(name, file, timeout=TIMEOUT)
    return tuple(
        described_tensor(key, each.dtype, each.shape, *each.data_offsets, file) for key, each in found.tensors.items()
    )


def _file(name: str, file: str, most: int) -> bytes:
    """A small file. The library's own download waits half a minute for a network that is not there."""
    found = bytearray()
    with get_session().stream(
        "GET", hf_hub_url(name, file), headers=build_hf_headers(), timeout=TIMEOUT, follow_redirects=True
    ) as answer:
        hf_raise_for_status(answer)
        for piece in answer.iter_bytes():
            found += piece
            if len(found) > most:
                raise BrokenModel(f"{file} of {name} is far too large to be one.", hint="Choose another model.")
    return bytes(found)


def _first_answer(ask: Callable[[], _Answer]) -> _Answer:
    """What `ask` answers in time. On a thread that ends with the program, as a search for an address can't be ended."""
    answers: list[_Answer] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:  # noqa: BLE001 - the edge of this thread: raised again on the other side
            failures.append(error)

    thread = threading.Thread(target=run, name="hub", daemon=True)
    thread.start()
    thread.join(FIRST_ANSWER)
    if failures:
        raise failures[0]
    if not answers:
        raise TimeoutError("no answer")
    return answers[0]


@contextmanager
def _told(name: str) -> Iterator[None]:
    """The Hub's failures in words."""
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise DownloadFailed(
            f"The Hub was not asked about {name}: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.",
            hint="Unset it, or give the folder of a model that was downloaded.",
        ) from error
    except GatedRepoError as error:
        raise DownloadFailed(
            f"{name} is gated: its makers let in only those who have agreed to their terms.",
            hint=f"Agree at https://huggingface.co/{name}, then sign in with “hf auth login”.",
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise _no_model(name) from error
    except EntryNotFoundError as error:
        raise NotAModel(f"{name} lacks a file that its model needs: {_last_part(error)}.") from error
    except SafetensorsParsingError as error:
        raise BrokenModel(f"A safetensors file of {name} has no readable header.", hint="Choose another.") from error
    except HFValidationError as error:
        raise BadRequest(f"“{name}” is no name on the Hub.", hint="Write hub:ORGANISATION/NAME.") from error
    except HfHubHTTPError as error:
        if error.response.status_code == 401:  # what the Hub says to strangers of models that may not exist
            raise _no_model(name) from error
        raise DownloadFailed(
            f"The Hub answered {error.response.status_code} when asked about {name}.", hint="Try again later."
        ) from error
    except _NETWORK_FAILURES as error:
        raise DownloadFailed(
            f"The Hub can't be reached to ask about {name}.",
            hint="Check the network, or give the folder of a model that was downloaded.",
        ) from error


def _no_model(name: str) -> NotAModel:
    return NotAModel(
        f"The Hub has no model “{name}”, or it is private.",
        hint="Check the name; for a private one sign in with “hf auth login”.",
    )


def _last_part(error: EntryNotFoundError) -> str:
    response = getattr(error, "response", None)
    return str(response.url).rpartition("/")[2].partition("?")[0] if response is not None else "a file"
