"""What can go wrong in a way that the user can mend."""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Iterator


class ConfigError(ValueError):
    """Bad input. The message is one line that holds the value and the remedy; the command line exits with 2."""


class FolderInUse(ConfigError):
    """Another process has the run's folder."""


class TrainingError(RuntimeError):
    """Training cannot go on. The command line says what is saved, and exits with 1.

    Attributes:
        may_pass: whether another try may succeed, as after a process has died; NaN comes again.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class Blamed(Exception):
    """Error inside an environment or a bonus, perhaps of another process, with its traceback as text."""

    def __init__(self, message: str, traceback: str, may_pass: bool = False) -> None:
        super().__init__(message, traceback, may_pass)
        self.message = message
        self.traceback = traceback
        self.may_pass = may_pass

    def __str__(self) -> str:
        return f"{self.message}\n{self.traceback}"

    @classmethod
    def of(cls, owner: str, error: BaseException) -> Blamed:
        """Blame `owner`, such as Walker.step, for an error that it raised; another try may succeed."""
        return cls(
            f"{owner} raised {one_line(error)}",
            "".join(tracebacks.format_exception(error)),
            may_pass=True,
        )


def methods_of(error: BaseException) -> Iterator[tuple[object, str]]:
    """Yield the object and the method's name for every call that the error went through, the outermost first."""
    for frame, _ in tracebacks.walk_tb(error.__traceback__):
        yield frame.f_locals.get("self"), frame.f_code.co_name


def one_line(error: BaseException) -> str:
    """Return the kind of an error and what it says, as one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class Note(UserWarning):
    """Something the user should know that stops nothing; the command line prints it as one line."""
