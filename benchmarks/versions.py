"""Two versions of the package: training speed of each, in turn on the same machine.

    git worktree add ../before v0.1      # or any commit; a plain copy of the source will do
    python benchmarks/versions.py ../before . --rounds 3 -- --env breakout --steps 131072

What stands behind `--` are flags of `ssedb train` that both versions know. In every round each
version trains once, in a process of its own; the order alternates. The speed of a run is the median
over the second half of its iterations, so that start, compiling and capturing do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def speed(source: Path, flags: list[str], timeout: float) -> float:
    """Train once with the package in a folder; return its agent steps per second."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "ssedb", "train", *flags, "--out", str(run)]
        paths = [str(source.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            sys.exit(f"{source}: {' '.join(last)}")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = [row["sps"] for row in rows if "sps" in row]
    return statistics.median(rates[len(rates) // 2 :])


def compare(
    before: Path, after: Path, flags: list[str], rounds: int, timeout: float
) -> dict[Path, list[float]]:
    """Time both versions in every round, the other one first in every second."""
    speeds: dict[Path, list[float]] = {before: [], after: []}
    for number in range(rounds):
        for source in (before, after) if number % 2 == 0 else (after, before):
            speeds[source].append(speed(source, flags, timeout))
            print(f"round {number + 1}, {source}: {speeds[source][-1]:,.0f} steps/s", flush=True)
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, flags = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    for source in (options.before, options.after):
        if not (source / "ssedb" / "__init__.py").exists():
            parser.error(f"{source} holds no ssedb/; name the folder of a version")
    if options.before.resolve() == options.after.resolve():
        parser.error("both folders are the same; name two versions")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: must be 1 or more")
    before, after = options.before, options.after
    speeds = compare(before, after, flags, options.rounds, options.timeout)
    ratios = [new / old for old, new in zip(speeds[before], speeds[after], strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    print("\n| version | agent steps/s, median of the rounds |\n|---|---|")
    for source, rates in speeds.items():
        print(f"| {source} | {statistics.median(rates):,.0f} |")
    print(f"\nafter / before: {statistics.mean(ratios):.3f} +- {error:.3f}")


if __name__ == "__main__":
    main()
