"""What the libraries raise, in our words."""

from __future__ import annotations

import errno
import re
from pickle import PickleError, UnpicklingError

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from layerlight.core.errors import BrokenModel, LayerlightError, LoadFailed, OutOfMemory, RunFailed

LIBRARY_FAILURES: tuple[type[Exception], ...] = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, MemoryError, OSError, PickleError,
    RuntimeError, SafetensorError, StrictDataclassError, TypeError, ValueError, LayerlightError,
)  # fmt: skip
"""What torch and its family raise where they are called; ours pass through among them."""

_MEMORY_WORDS = re.compile(
    r"can't allocate memory|not enough memory|out of memory|Cannot allocate memory", re.IGNORECASE
)
_LIBRARY_CODE = re.compile(r"trust_remote_code|contains custom code|execute the (configuration|modeling) file")


def ran_out(error: BaseException) -> bool:
    """Whether it says that memory ran out: torch has one type for accelerators and only words for RAM and mps."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and _MEMORY_WORDS.search(str(error)) is not None


def loading_failure(error: Exception, name: str) -> LayerlightError:
    """Why `name` could not be loaded."""
    if isinstance(error, LayerlightError):
        return error
    words = first_line(error)
    if ran_out(error):
        return OutOfMemory(
            f"There was not enough memory to load {name}: {words}",
            hint="Plan it with a lower limit for that place, a shorter context, or quantised.",
        )
    if isinstance(error, SafetensorError):
        return BrokenModel(
            f"A weight file of {name} can't be read: it is damaged, or was changed while it was read.",
            hint="Download the model again; the log has the details.",
        )
    if isinstance(error, FileNotFoundError):
        return BrokenModel(f"A file of {name} is missing: {words}", hint="Download the missing file.")
    if isinstance(error, UnpicklingError) or "weights_only" in str(error):
        return BrokenModel(
            f"A weight file of {name} holds code or is no weight file; it was not run.",
            hint="Look for the same model in safetensors format.",
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return OutOfMemory(
            "The disk of the offload folder is full.", hint="Choose a disk with more room, or keep fewer layers there."
        )
    if isinstance(error, ImportError):
        return LoadFailed(f"{name} needs a package that is not installed: {words}")
    if _LIBRARY_CODE.search(str(error)):
        return LoadFailed(
            f"{name} brings its own program code, which Layerlight never runs.",
            hint="Look for a version of the model that the transformers library knows by itself.",
        )
    return LoadFailed(f"{name} could not be loaded: {words}", hint="The log has the details.")


def running_failure(error: Exception, *, again: bool = False) -> LayerlightError:
    """Why a run ended; `again` after memory had run out once already."""
    if isinstance(error, LayerlightError):
        return error
    if ran_out(error):
        when = ", and again in smaller passes from an empty cache" if again else ""
        return OutOfMemory(
            f"Memory ran out while answering{when}: {first_line(error)}",
            hint="What was written stays, and the model is still loaded. "
            "Use a shorter prompt or answer, or plan it with a lower limit there.",
        )
    if isinstance(error, SafetensorError):
        return RunFailed("A weight file that is read for each pass is damaged.", hint="Download the model again.")
    if isinstance(error, OSError):
        return RunFailed(
            f"A weight file can't be read any more: {error.strerror or first_line(error)}.",
            hint="Check the disk that it is on, then load the model again.",
        )
    return RunFailed(f"The model could not go on: {first_line(error)}", hint="The log has the details.")


def first_line(error: BaseException) -> str:
    """The first line of what it says, or its type's name; at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
