"""Two versions of the package: training speed of each, in turn on the same machine.

    git worktree add ../before v0.1      # or any commit; a plain copy of the source will do
    python benchmarks/versions.py ../before . --rounds 10 -- --env breakout --device cuda

What stands behind `--` are flags of `ssedb train` that both versions know. Both versions start and
warm up. From then on one of them trains for some iterations while the other is stopped by a signal,
in turn, so that both meet the same minute of a machine whose speed drifts. A round gives one ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ENDLESS = ["--steps", "1000000000"]
"""Flags of a run that ends when this script ends it."""


class Training:
    """A process that trains with the package in a folder, until it is killed.

    Args:
        source: the folder that holds `ssedb/`.
        flags: flags of `ssedb train`, without --steps and --out.
        folder: an empty folder for the run and its messages.
        timeout: seconds to wait for one row of the metrics.
    """

    def __init__(self, source: Path, flags: list[str], folder: Path, timeout: float) -> None:
        self.source = source
        self._timeout = timeout
        self._metrics = folder / "run" / "metrics.jsonl"
        self._messages = folder / "messages"
        command = [sys.executable, "-m", "ssedb", "train", *flags, *ENDLESS]
        paths = [str(source.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(self._messages, "w") as messages:
            self._process = subprocess.Popen(
                [*command, "--out", str(folder / "run")],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdout=messages,
                stderr=messages,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all processes that it started."""
        os.killpg(self._process.pid, number)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the metrics so far, one for each iteration."""
        text = self._metrics.read_text() if self._metrics.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, count: int) -> None:
        """Wait for so many rows of the metrics; exit if the process ends or writes none."""
        seen = -1
        while (now := len(self.rows())) < count:
            if now > seen:
                seen, deadline = now, time.monotonic() + self._timeout
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = self._messages.read_text().strip().splitlines()[-1:]
                sys.exit(f"{self.source}: {' '.join(last) or 'wrote no metrics'}")
            time.sleep(0.02)

    def speed(self, iterations: int) -> float:
        """Train for so many iterations and stop again; return agent steps per second.

        The iteration in which the process was stopped does not count.
        """
        before = len(self.rows())
        self.signal(signal.SIGCONT)
        self.wait_for(before + 1 + iterations)
        self.signal(signal.SIGSTOP)
        first, *_, last = self.rows()[before : before + 1 + iterations]
        return (last["steps"] - first["steps"]) / (last["time"] - first["time"])

    def kill(self) -> None:
        """End the process and wait for it."""
        self.signal(signal.SIGKILL)
        self._process.wait()


def compare(
    versions: list[Training], rounds: int, iterations: int, warm_up: int
) -> list[list[float]]:
    """Return the speeds of each version in every round; the other one is first in every second."""
    for version in versions:
        version.wait_for(warm_up)
    for version in versions:
        version.signal(signal.SIGSTOP)
    speeds: list[list[float]] = [[] for _ in versions]
    for number in range(rounds):
        order = range(len(versions))
        for index in order if number % 2 == 0 else reversed(order):
            speeds[index].append(versions[index].speed(iterations))
        rates = ", ".join(f"{rates[-1]:,.0f}" for rates in speeds)
        print(f"round {number + 1}: {rates} steps/s", flush=True)
    return speeds


def main() -> None:
    """Compare two versions and print a table."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [options] BEFORE AFTER [-- FLAGS OF ssedb train]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path, help="folder that holds ssedb/")
    parser.add_argument("after", type=Path, help="folder that holds ssedb/")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=4, help="of each version in a round")
    parser.add_argument("--warm-up", type=int, default=3, help="iterations that do not count")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one iteration")
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, flags = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    sources = [options.before, options.after]
    for source in sources:
        if not (source / "ssedb" / "__init__.py").exists():
            parser.error(f"{source} holds no ssedb/; name the folder of a version")
    if options.before.resolve() == options.after.resolve():
        parser.error("both folders are the same; name two versions")
    for name in ("rounds", "iterations", "warm_up"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: must be 1 or more")
    if taken := {"--steps", "--out"} & set(flags):
        parser.error(f"{', '.join(sorted(taken))} behind `--`: this script sets it; leave it out")
    with tempfile.TemporaryDirectory() as folder:
        versions: list[Training] = []
        try:
            for number, source in enumerate(sources):
                (place := Path(folder) / str(number)).mkdir()
                versions.append(Training(source, flags, place, options.timeout))
            speeds = compare(versions, options.rounds, options.iterations, options.warm_up)
        finally:
            for version in versions:
                version.kill()
    ratios = [new / old for old, new in zip(*speeds, strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    print("\n| version | agent steps/s, median of the rounds |\n|---|---|")
    for source, rates in zip(sources, speeds, strict=True):
        print(f"| {source} | {statistics.median(rates):,.0f} |")
    print(f"\nafter / before: {statistics.mean(ratios):.3f} +- {error:.3f}")


if __name__ == "__main__":
    main()
