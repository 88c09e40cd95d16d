"""Errors that the user can fix, each in one line."""

from __future__ import annotations

import difflib
import errno
import traceback as tracebacks
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class ConfigError(ValueError):
    """Bad input. The message is one line with the value and the remedy; the exit code is 2."""


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
    """Error of an environment or a bonus, perhaps in another process; its traceback is text."""

    def __init__(self, message: str, traceback: str, may_pass: bool = False) -> None:
        super().__init__(message, traceback, may_pass)
        self.message = message
        self.traceback = traceback
        self.may_pass = may_pass
        if traceback:  # where nothing catches this, Python prints it below the message
            self.add_note(traceback)

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, owner: str, error: BaseException, may_pass: bool = True) -> Blamed:
        """Blame `owner`, such as Walker.step, for an error that it raised."""
        return cls(
            f"{owner} raised {one_line(error)}",
            "".join(tracebacks.format_exception(error)),
            may_pass=may_pass,
        )


def remedy(error: OSError) -> str:
    """Return what to do about a path that the system refuses."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "free some space there" if full else "choose a path that you may use"


def methods_of(error: BaseException) -> Iterator[tuple[object, str]]:
    """Yield object and method's name for each call that the error came through, outermost first."""
    for frame, _ in tracebacks.walk_tb(error.__traceback__):
        yield frame.f_locals.get("self"), frame.f_code.co_name


def one_line(error: BaseException) -> str:
    """Return the kind of an error and what it says, as one line."""
    message = " ".join(str(error).split())
    if isinstance(error, SystemExit):
        return f"SystemExit (it called sys.exit({message}))"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


@contextmanager
def must_fit(mismatch: str, remedy: str) -> Iterator[None]:
    """Raise ConfigError if, in the block, a saved state turns out not to fit what loads it.

    Args:
        mismatch: says which state does not fit what.
        remedy: says what the user can do.
    """
    try:
        yield
    except ConfigError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error) or repr(error)).strip().splitlines()[-1].strip()
        raise ConfigError(f"{mismatch}: {reason}; {remedy}") from None


class Note(UserWarning):
    """Something the user should know that stops nothing; the command line prints it as one line."""


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a question with the nearest one or two names after a prefix, "" if none is near."""
    near = [prefix + other for other in difflib.get_close_matches(name, list(known), 2, 0.65)]
    return f"did you mean {' or '.join(near)}? " if near else ""


def require_installed(*modules: str, extra: str, instead: str = "") -> None:
    """Raise ConfigError if one of the modules, which an extra of ssedb brings, is not installed.

    Args:
        modules: names to import.
        extra: the extra that brings them.
        instead: what the user may do rather than install it.
    """
    for module in modules:
        if find_spec(module) is None:
            name = PACKAGE_NAMES.get(module, module)
            remedy = f"run `pip install 'ssedb[{extra}]'`" + (f", or {instead}" if instead else "")
            raise ConfigError(f"{name} is not installed; {remedy}")


PACKAGE_NAMES = {"av": "PyAV", "ray": "Ray", "sklearn": "scikit-learn", "wandb": "W&B"}
"""Names by which people know modules."""
