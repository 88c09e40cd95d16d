"""Errors inside code from outside, an environment or a bonus: one line that names it, and its traceback in a file."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import gymnasium
import torch

from ssedb.bonuses.base import Bonus
from ssedb.errors import ConfigError, TrainingError, one_line
from ssedb.runlog import ERROR_LOG


class Blamed(Exception):
    """What went wrong inside an environment or a bonus, perhaps in another process."""

    def __init__(self, said: str, story: str, may_pass: bool = False) -> None:
        super().__init__(said, story, may_pass)
        self.said, self.story, self.may_pass = said, story, may_pass

    def __str__(self) -> str:
        return f"{self.said}\n{self.story}"

    @classmethod
    def of(cls, owner: str, error: BaseException) -> Blamed:
        return cls(f"{owner} raised {one_line(error)}", "".join(traceback.format_exception(error)), may_pass=True)


def blamed(error: BaseException) -> Blamed | None:
    """Find the environment or bonus whose code raised the error; None if it was none of theirs."""
    owner = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        candidate = frame.f_locals.get("self")
        if isinstance(candidate, Bonus):  # the method that was called, not one deep inside
            owner = f"{type(candidate).__name__}.{frame.f_code.co_name}"
            break
        if isinstance(candidate, gymnasium.Env):  # the innermost; what Gymnasium wraps around it is not at fault
            ours = type(candidate).__module__.startswith("gymnasium.")
            owner = f"{type(candidate.unwrapped if ours else candidate).__name__}.{frame.f_code.co_name}"
    return None if owner is None else Blamed.of(owner, error)


@contextmanager
def blaming(folder: Path, when: Callable[[], str]) -> Iterator[None]:
    """Turn an error inside an environment or a bonus into a TrainingError of one line; its traceback goes to the folder."""
    try:
        yield
    except (ConfigError, TrainingError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        found = error if isinstance(error, Blamed) else blamed(error)
        if found is None or not folder.is_dir():  # a process without a folder shows it all
            raise
        with suppress(OSError):
            (folder / ERROR_LOG).write_text(found.story, encoding="utf-8")
        message = f"{found.said}, {when()}; the traceback is in {folder / ERROR_LOG}"
        raise TrainingError(message, may_pass=found.may_pass) from error
