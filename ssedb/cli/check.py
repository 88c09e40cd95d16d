"""`ssedb check`: check a bonus, ours or yours, against the contract."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse
from ssedb.config import TrainConfig
from ssedb.terminal import plural


@dataclass(frozen=True)
class Check:
    """Check that a bonus keeps its contract; show how much noise moves it (docs/conformance.md)."""

    bonus: tyro.conf.Positional[str]
    """A bonus of `ssedb list bonuses`, or a class of your own as package.module:Class."""
    device: str = "cpu"
    """Where to compute: auto, cpu, cuda or cuda:N."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Check, args, "check")
    # A configuration names the mistakes in both settings.
    config = TrainConfig(env="rooms-small", bonus=options.bonus, device=options.device)
    return 0 if print_checks(config.bonus, config.device) else 1


def print_checks(bonus: str, device: str) -> bool:
    """Print every check as it is done, then what each noise does to the bonus.

    Returns:
        Whether no check failed.
    """
    from rich.text import Text

    from ssedb.testing.conformance import CHECKS, run_check, sensitivity
    from ssedb.testing.subject import Subject

    console = terminal.console()
    subject, failed = Subject(bonus, device), 0
    for check in CHECKS:
        result = run_check(check, subject)
        failed += result.outcome == "fail"
        colour = {"pass": "green", "fail": "bold red", "skip": "dim"}[result.outcome]
        line = Text(
            terminal.wrapped(result.why, f"{result.outcome}  {result.name:<38} ", indent=" " * 6)
        )
        line.stylize(colour, 0, len(result.outcome))
        console.print(line, soft_wrap=True)
    if not failed:
        console.print(
            "\nshare of noise in the bonus, hardly trained (0 is blind to it, 1 sees nothing else):"
        )
        for noise, share in sensitivity(subject).items():
            console.print(
                f"  {noise:<12} " + ("the bonus does not vary" if share is None else f"{share:.2f}")
            )
        console.print("`ssedb analyze probe` measures a trained run\n")
    console.print(
        f"{bonus}: "
        + (f"{failed} of {plural(len(CHECKS), 'check')} failed" if failed else "keeps its contract")
    )
    return not failed
