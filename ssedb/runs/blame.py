"""Errors in code from outside (environment, bonus, noise): one line, and a traceback in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception

import torch

from ssedb.bonuses.base import Bonus
from ssedb.config import TrainConfig
from ssedb.envs.workers import environment_blamed
from ssedb.errors import Blamed, ConfigError, TrainingError, methods_of, one_line
from ssedb.noises.base import Noise
from ssedb.runs.files import same_directory, write_whole
from ssedb.runs.folder import ERROR_LOG, outside_settings


def _blamed(error: BaseException) -> Blamed | None:
    """Find the bonus, noise or environment whose code raised the error; None if none did."""
    for owner, method in methods_of(error):
        if isinstance(owner, (Bonus, Noise)):  # the method that was called, not one deep inside
            return Blamed.of(f"{type(owner).__name__}.{method}", error, may_pass=False)
    return environment_blamed(error)


def _outside(config: TrainConfig | None) -> str:
    """Return the bonus and the noise of a run that are from outside, "" if none is."""
    names = [] if config is None else outside_settings(vars(config))
    return ", ".join(f"{name}={getattr(config, name)}" for name in names if name != "env")


def _is_out_of_memory(error: BaseException) -> bool:
    """Tell whether a GPU's or the machine's memory is full, which torch says in two ways."""
    full = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return full or "can't allocate memory" in str(error)


@contextmanager
def blaming(
    folder: Path | None,
    when: Callable[[], str],
    in_place: Callable[[], bool] = lambda: True,
    config: TrainConfig | None = None,
) -> Iterator[None]:
    """Turn an error in code from outside into a TrainingError of one line.

    Args:
        folder: takes the traceback, as `error.log`; there is none if it is None.
        when: says how far the run was.
        in_place: tells whether the folder is still the run's own.
        config: settings of the run.
    """
    try:
        with same_directory():  # an environment may change it
            yield
    except (ConfigError, TrainingError):
        raise
    except (Exception, SystemExit) as error:
        if _is_out_of_memory(error):
            remedy = "use smaller networks, fewer environments or another --device"
            raise TrainingError(f"out of memory {when()}; {remedy}", may_pass=True) from error
        found = error if isinstance(error, Blamed) else _blamed(error)
        if found is None and isinstance(error, SystemExit):  # never the way to end a run
            found = Blamed.of("code from outside", error)
        if found is None and (named := _outside(config)):  # what it gave may have made ours fail
            message = f"with {named} from outside: {one_line(error)}"
            found = Blamed(message, "".join(format_exception(error)))
        if found is None or not (folder is None or folder.is_dir()):
            raise  # a process without a folder shows it all
        message = f"{found.message}, {when()}"
        log = None if folder is None else folder / ERROR_LOG
        if log is not None and in_place():  # another run may be there by now
            try:
                write_whole(log, found.traceback or "".join(format_exception(error)))
            except OSError:
                pass
            else:
                message += f"; the traceback is in {log}"
        raise TrainingError(message, may_pass=found.may_pass) from error
