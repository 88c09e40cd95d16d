"""The command line: one module per command, with its flags, its call and what it prints.

Nothing here waits for torch before the input is checked.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ssedb import __version__
from ssedb.engine import distributed
from ssedb.errors import ConfigError, Note, TrainingError, did_you_mean, one_line, remedy
from ssedb.runs.signals import ending_signals
from ssedb.terminal import literal, print_pairs
from ssedb.terminal.streams import flush_or_drop, prepare_streams

COMMANDS = {
    "train": "train an agent, or continue a run with --resume",
    "eval": "run episodes with a trained agent",
    "demo": "show in minutes what noise does to RND and to DB",
    "doctor": "check a run's folder, or the installation",
    "export": "write a run's weights as safetensors",
    "sweep": "train a grid of runs; skip those that are done",
    "stats": "compare many runs in tables and figures",
    "analyze": "measure what a bonus has learned: probe, spikes, tsne",
    "check": "check that a bonus or a noise, ours or yours, keeps its contract",
    "theory": "check the paper's theorems numerically",
    "report": "make a page of runs for a browser",
    "bench": "measure the speed of training on this machine",
    "list": "list environments, noises or bonuses",
}
"""Every command and what it is for; `ssedb.cli.<command>` has its `main`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments; those of the process unless given.

    Returns:
        The exit code: 0, 1 for a failure, 2 for bad input, 130 if stopped.
    """
    # Torch's threads would otherwise spin between operations on the cores that the emulators need.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if argv is None:
        _speak_utf8()
        prepare_streams()
        atexit.register(_ignore_signals)  # the first to be registered is called last
    args = [*(sys.argv[1:] if argv is None else argv)]  # `list` is a command here
    code = 130
    try:
        code = _answer(args)
    except KeyboardInterrupt:  # once more, while the first was answered
        pass
    finally:
        if argv is None:  # all is done: a signal while Python cleans up changes nothing
            for number in (signal.SIGINT, *ending_signals()):
                signal.signal(number, lambda *_: os._exit(code))
        flush_or_drop()
    return code


def _ignore_signals() -> None:
    """Keep the exit code while the interpreter ends, where handlers in Python no longer run."""
    for number in (signal.SIGINT, *ending_signals()):
        signal.signal(number, signal.SIG_IGN)


def _answer(args: list[str]) -> int:
    """Run a command; say what went wrong in one line, and return the exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = dispatch(args)
            sys.stdout.flush()
            return code
    except ConfigError as error:
        _say(str(error))
        return 2
    except OSError as error:
        denied = isinstance(error, PermissionError)
        why = "no permission" if denied else error.strerror or one_line(error)
        _say(f"{error.filename or 'a file, or standard output'}: {why}; {remedy(error)}")
        return 2
    except TrainingError as error:
        if distributed.rank() == 0:  # it stops all processes of a run; the first one says it
            _say(str(error))
        return 1
    except KeyboardInterrupt as stop:
        _say("; ".join(["stopped", *map(str, stop.args)]))
        return 130


def _say(text: str) -> None:
    """Print one line on standard error."""
    print(f"ssedb: {literal(text)}", file=sys.stderr)


def _show_warning(
    message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any, **more: Any
) -> None:
    """Print a note as one line, any other warning as Python does."""
    if category is Note:
        _say(str(message))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _speak_utf8() -> None:
    """Begin again in UTF-8 where the locale knows ASCII only, in which paths would be no text."""
    if sys.getfilesystemencoding() == "ascii" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # for the processes of a sweep
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def dispatch(args: list[str]) -> int:
    """Call the command that the arguments name; return its exit code."""
    for word in args:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{word!r} is no {sys.getfilesystemencoding()} text; give the path another name"
            ) from None
    if not args or args[0] in ("-h", "--help"):
        print("usage: ssedb COMMAND [flags]\n")
        print("Train agents that explore with no reward, and measure what noise does to them.\n")
        print_pairs(COMMANDS, indent="  ")
        print("\n`ssedb COMMAND --help` explains every flag. `ssedb demo` is a place to start.")
        return 0
    if args[0] == "--version":
        print(__version__)
        return 0
    if args[0] not in COMMANDS:
        meant = did_you_mean(args[0], COMMANDS)
        raise ConfigError(f"unknown command {args[0]!r}; {meant}use one of {', '.join(COMMANDS)}")
    if distributed.size() > 1 and args[0] != "train":
        raise ConfigError(
            f"`ssedb {args[0]}` runs in one process, not in {distributed.size()}; "
            "leave torchrun out"
        )
    command: Callable[[list[str]], int] = import_module(f"ssedb.cli.{args[0]}").main
    return command(args[1:])


if __name__ == "__main__":
    sys.exit(main())
