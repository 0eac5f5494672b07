"""Each failure a person can meet: a title, a message and a hint."""

from __future__ import annotations


class LayerlightError(Exception):
    """A failure in words. `exit_code` is what the terminal returns for it."""

    title = "Something went wrong"
    exit_code = 1

    def __init__(self, message: str, hint: str = "", title: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if title:
            self.title = title

    def __str__(self) -> str:
        return f"{self.title}: {self.message}" + (f" {self.hint}" if self.hint else "")


class BadRequest(LayerlightError):
    """The request itself can't be met as written; nothing was begun."""

    title = "That can't be done as asked"
    exit_code = 2


class BadSize(BadRequest):
    title = "That is not a size"


class UnknownPlace(BadRequest):
    title = "There is no such place here"


class NotAModel(BadRequest):
    title = "No model there"


class WrongKindOfModel(BadRequest):
    """A real model, but not one that this action can use."""

    title = "This model can't do that"


class DoesNotFit(BadRequest):
    title = "It does not fit"


class PromptTooLong(BadRequest):
    title = "The prompt is longer than the context"


class MapMismatch(BadRequest):
    """A placement map that was made for another model or another machine."""

    title = "That map belongs to another model"


class Busy(BadRequest):
    title = "The engine is busy"


class BrokenModel(LayerlightError):
    """Files of the model are missing, cut short or contradict each other."""

    title = "The model's files are not whole"


class LoadFailed(LayerlightError):
    title = "Loading failed"


class OutOfMemory(LayerlightError):
    title = "Memory ran out"


class RunFailed(LayerlightError):
    title = "The run stopped"


class NotFinite(RunFailed):
    title = "The model's numbers broke"


class EngineDied(LayerlightError):
    title = "The engine stopped"


class DownloadFailed(LayerlightError):
    title = "The download failed"


class StoreFailed(LayerlightError):
    title = "It could not be saved"


class Stopped(LayerlightError):
    """Raised inside a job when a person asked it to stop; never shown as a failure."""

    title = "Stopped"
    exit_code = 130

    def __init__(self, message: str = "Stopped at your request.", hint: str = "", title: str = "") -> None:
        super().__init__(message, hint, title)


class Unexpected(LayerlightError):
    """A fault of ours: the traceback is in the log."""

    title = "Something unexpected happened"
