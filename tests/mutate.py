"""Break the package on purpose, one line at a time, and see whether a test notices.

`tests/mutants.toml` lists the breakages. Each has

    file     the file to break
    replace  text that stands in it exactly once
    by       what to put there instead
    why      what a user would suffer, in one line
    tests    what should notice: files or test ids, as pytest takes them

`make mutants` tries all of them; `python -m tests.mutate gamma` those whose file or reason
contains "gamma".

A mutant is killed when a test fails that passes without the mutant, by an assertion or by another
error. It is broken when the package cannot be imported, or when the test fails without the mutant,
too.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from rich.console import Console
from rich.markup import escape

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("mutants.toml")
TIME_LIMIT = 600.0
"""Seconds after which a trial is given up; that a mutant hangs is not enough to notice it."""


@dataclass(frozen=True)
class Mutant:
    """One breakage, and the tests that should notice it."""

    file: str
    replace: str
    by: str
    why: str
    tests: tuple[str, ...]

    def source(self) -> str:
        """Return the broken file's text.

        Raise ValueError unless the text to replace stands there exactly once.
        """
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if (found := text.count(self.replace)) != 1:
            raise ValueError(
                f"{self.file}: {self.replace!r} stands there {found} times ({self.why})"
            )
        return text.replace(self.replace, self.by)


def read_mutants(path: Path = LIST) -> list[Mutant]:
    """Read the list."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def copy_project(folder: Path) -> None:
    """Copy what git tracks, or would track, into a folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


class Trial:
    """A run of tests in a copy of the project, in a forked process.

    Forked, because torch is then imported once for all of them.
    """

    def __init__(self, tests: Sequence[str], mutant: Mutant | None = None) -> None:
        self.mutant, self.began = mutant, time.monotonic()
        self._place = tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True)
        self.folder = Path(self._place.name) / "project"
        self.log = Path(self._place.name) / "log"
        copy_project(self.folder)
        if mutant is not None:
            (self.folder / mutant.file).write_text(mutant.source(), encoding="utf-8")
        # Emulators that wait to be freed: without their threads, the fork would crash on them.
        gc.collect()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(tests)

    def _run(self, tests: Sequence[str]) -> NoReturn:
        """Become a fresh pytest in the copy."""
        code = 3
        try:
            os.setsid()  # so that a time-out ends what the tests have started, too
            os.chdir(self.folder)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            # A wide terminal: pytest cuts the reason of a failure where the line ends.
            os.environ.update(
                PYTHONPATH=str(self.folder), PYTHONDONTWRITEBYTECODE="1", COLUMNS="300"
            )
            sys.path[:] = [
                str(self.folder),
                *(path for path in sys.path if path not in ("", str(ROOT))),
            ]
            for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "ssedb")]:
                del sys.modules[name]
            # Processes that the tests spawn read the name of their parent's main module.
            sys.modules["__main__"] = types.ModuleType("__main__")
            torch.set_num_threads(1)
            code = int(
                pytest.main(
                    ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
                )
            )
        finally:
            os._exit(code)

    def done(self) -> bool:
        """Whether it has ended; one that takes too long is ended."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        self.seconds = time.monotonic() - self.began
        self.code = os.waitstatus_to_exitcode(status) if pid else None
        if pid == 0 and self.seconds > TIME_LIMIT:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return True
        return pid != 0

    def close(self) -> tuple[int | None, str]:
        """Return pytest's exit code (None: timed out) and what it printed; remove the copy."""
        output = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        self._place.cleanup()
        return self.code, output


@dataclass(frozen=True)
class Verdict:
    """Outcome of a trial, the test that failed (if one did), and its reason."""

    outcome: str
    test: str = ""
    reason: str = ""


def judge(code: int | None, output: str) -> Verdict:
    """Tell the outcome from the exit code and the output of pytest."""
    if code is None:
        return Verdict("timed out", reason=f"no end within {TIME_LIMIT:.0f} s")
    if code == 0:
        return Verdict("survived")
    # Above the summary stands what the test printed, which may begin like its lines.
    summary = output.rpartition("short test summary info")[2]
    # ERROR: a fixture of the test failed.
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", summary, re.MULTILINE)
    if code != 1 or failed is None:
        lines = output.strip().splitlines() or [f"pytest ended with {code}"]
        return Verdict("broken", reason=lines[-1])
    test, reason = failed[1], failed[2] or ""
    if re.match(r"(NameError|SyntaxError|ImportError|IndentationError|UnboundLocalError)", reason):
        return Verdict("broken", test, reason)
    return Verdict("killed", test, reason)


def wait_for(trials: list[Trial]) -> Trial:
    """Wait until one has ended, and take it off the list."""
    while True:
        for trial in trials:
            if trial.done():
                trials.remove(trial)
                return trial
        time.sleep(0.05)


def unbroken(tests: Sequence[str]) -> Verdict:
    """Run tests without a mutant."""
    return judge(*wait_for([Trial(tests)]).close())


class Referee:
    """Runs each test that killed a mutant without the mutant: a test that fails anyway is void."""

    def __init__(self) -> None:
        self._passes: dict[str, bool] = {}

    def review(self, verdict: Verdict) -> Verdict:
        """Return the verdict, or a broken one if the test fails without the mutant."""
        if verdict.outcome != "killed":
            return verdict
        if verdict.test not in self._passes:
            self._passes[verdict.test] = unbroken([verdict.test]).outcome == "survived"
        if self._passes[verdict.test]:
            return verdict
        return Verdict("broken", verdict.test, "fails without the mutant, too")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "words", nargs="*", help="try only mutants whose file or reason contains one of these"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    parser.add_argument(
        "--no-baseline",
        action="store_true",
        help="do not run all the tests unbroken first; those that kill a mutant are run",
    )
    options = parser.parse_args()
    words = [word.lower() for word in options.words]
    mutants = [
        m
        for m in read_mutants()
        if not words or any(w in f"{m.file} {m.why}".lower() for w in words)
    ]
    console = Console(highlight=False, soft_wrap=True)
    for mutant in mutants:
        mutant.source()
    if not options.no_baseline:
        first = unbroken(sorted({test for mutant in mutants for test in mutant.tests}))
        if first.outcome != "survived":
            console.print(f"without a mutant {escape(f'{first.test} {first.reason}')}")
            return 1
    left, waiting, running = 0, list(reversed(mutants)), []
    referee = Referee()
    while waiting or running:
        while waiting and len(running) < options.jobs:
            mutant = waiting.pop()
            running.append(Trial(mutant.tests, mutant))
        trial = wait_for(running)
        verdict = referee.review(judge(*trial.close()))
        colour = {
            "killed": "green",
            "survived": "bold red",
            "broken": "bold yellow",
            "timed out": "bold yellow",
        }[verdict.outcome]
        console.print(
            f"[{colour}]{verdict.outcome:<9}[/] {trial.seconds:4.0f} s  "
            f"{escape(trial.mutant.file)}: {escape(trial.mutant.why)}"
            f"\n{'':17} {escape(f'{verdict.test}  {verdict.reason}'[:160])}"
        )
        left += verdict.outcome != "killed"
    console.print(f"{len(mutants) - left} of {len(mutants)} killed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
