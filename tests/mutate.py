"""Break the package on purpose, one line at a time, and see whether a test notices.

`tests/mutants.toml` lists the breakages. Each has

    file     the file to break
    replace  text that stands in it exactly once
    by       what to put there instead
    why      what a user would suffer, in one line
    tests    what should notice: files or test ids, as pytest takes them

`make mutants` tries all of them; `python -m tests.mutate gamma` those whose file or reason contains "gamma".
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("mutants.toml")
TIME_LIMIT = 600.0
"""Seconds after which a mutant counts as noticed: it hangs."""


@dataclass(frozen=True)
class Mutant:
    """One breakage, and the tests that should notice it."""

    file: str
    replace: str
    by: str
    why: str
    tests: tuple[str, ...]

    def source(self) -> str:
        """Return the broken file's text; raise ValueError unless the text to replace stands there exactly once."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if (found := text.count(self.replace)) != 1:
            raise ValueError(f"{self.file}: {self.replace!r} stands there {found} times ({self.why})")
        return text.replace(self.replace, self.by)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: `killed`, `survived`, or `broken` where it could not even be tried."""

    outcome: str
    by: str
    seconds: float


def read_mutants(path: Path = LIST) -> list[Mutant]:
    """Read the list."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def copy_project(folder: Path) -> None:
    """Copy what git tracks, or would track, into a folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_tests(folder: Path, tests: tuple[str, ...]) -> tuple[int | None, str]:
    """Run tests in a copy of the project; return pytest's exit code (None: timed out) and what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def judge(code: int | None, output: str) -> tuple[str, str]:
    """Tell the outcome, and what noticed it, from a run of pytest."""
    if code is None:
        return "killed", f"no end within {TIME_LIMIT:.0f} s"
    if code == 0:
        return "survived", ""
    failed = re.search(r"^FAILED (\S+)(?: - (.*))?$", output, re.MULTILINE)
    if code != 1 or failed is None:
        return "broken", output.strip().splitlines()[-1] if output.strip() else f"pytest ended with {code}"
    reason = failed[2] or ""
    if re.match(r"(NameError|SyntaxError|ImportError|IndentationError|UnboundLocalError)", reason):
        return "broken", f"{failed[1]}: {reason}"
    return "killed", f"{failed[1]}  {reason}"[:160]


def try_mutant(mutant: Mutant) -> Verdict:
    """Apply one mutant to a copy of the project and run the tests that should notice."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        copy_project(folder)
        (folder / mutant.file).write_text(mutant.source(), encoding="utf-8")
        outcome, by = judge(*run_tests(folder, mutant.tests))
    return Verdict(outcome, by, time.monotonic() - began)


def baseline(mutants: list[Mutant]) -> str | None:
    """Run the tests without a mutant; return what failed, or None. A test that fails anyway notices nothing."""
    tests = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy_project(Path(name))
        code, output = run_tests(Path(name), tests)
    return None if code == 0 else "\n".join(output.splitlines()[-15:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="try only mutants whose file or reason contains one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests unbroken first")
    options = parser.parse_args()
    words = [word.lower() for word in options.words]
    mutants = [m for m in read_mutants() if not words or any(w in f"{m.file} {m.why}".lower() for w in words)]
    console = Console(highlight=False, soft_wrap=True)
    for mutant in mutants:
        mutant.source()
    if not options.no_baseline and (failure := baseline(mutants)) is not None:
        console.print(f"the tests fail without a mutant:\n{escape(failure)}")
        return 1
    left: list[Mutant] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, verdict in zip(mutants, pool.map(try_mutant, mutants), strict=True):
            colour = {"killed": "green", "survived": "bold red", "broken": "bold yellow"}[verdict.outcome]
            console.print(
                f"[{colour}]{verdict.outcome:<9}[/] {verdict.seconds:4.0f} s  {escape(mutant.file)}: {escape(mutant.why)}"
                f"\n{'':17} {escape(verdict.by)}"
            )
            if verdict.outcome != "killed":
                left.append(mutant)
    console.print(f"{len(mutants) - len(left)} of {len(mutants)} killed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
