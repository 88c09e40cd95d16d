"""`ssedb check`: check that a bonus or a noise, ours or yours, keeps its contract."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError, did_you_mean
from ssedb.noises import is_noise, list_noises
from ssedb.options import bonus_names, canonical_bonus
from ssedb.terminal import plural
from ssedb.validate import class_hint

if TYPE_CHECKING:
    from ssedb.testing.subject import Subject


@dataclass(frozen=True)
class Check:
    """Check that a bonus or a noise keeps its contract (docs/conformance.md)."""

    name: tyro.conf.Positional[str]
    """A bonus or noise of `ssedb list`, or a class of your own as package.module:Class."""
    device: str = "cpu"
    """Where to compute: auto, cpu, cuda or cuda:N."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Check, args, "check")
    kind = kind_of(options.name)
    # A configuration names the mistakes in both settings.
    config = TrainConfig(env="rooms-small", device=options.device, **{kind: options.name})  # type: ignore[arg-type]
    return 0 if print_checks(getattr(config, kind), config.device) else 1


def kind_of(name: str) -> str:
    """Return `noise` or `bonus`; for a wrong name, the one that it is more likely to mean.

    Raises:
        ConfigError: if the name means a class or a module, and is not written as module:Class.
    """
    if is_noise(name):
        return "noise"
    if ":" in name:
        return _kind_beside(name.partition(":")[0])
    if canonical_bonus(name) in bonus_names() or did_you_mean(name, bonus_names()):
        return "bonus"
    if did_you_mean(name, list_noises()):
        return "noise"
    if hint := class_hint(name):
        raise ConfigError(f"{name!r}: {hint}")
    return "bonus"


def _kind_beside(module: str) -> str:
    """Return `noise` if an imported module has noises and no bonus, else `bonus`."""
    from ssedb.bonuses.base import Bonus
    from ssedb.noises.base import Noise

    classes = [value for value in vars(sys.modules[module]).values() if isinstance(value, type)]
    noises, bonuses = (any(issubclass(c, base) for c in classes) for base in (Noise, Bonus))
    return "noise" if noises and not bonuses else "bonus"


def print_checks(name: str, device: str) -> bool:
    """Print every check as it is done; return whether none failed.

    For a bonus that passes, print as well what each noise does to it.
    """
    from rich.text import Text

    from ssedb.testing import conformance, noises
    from ssedb.testing.noise_subject import NoiseSubject
    from ssedb.testing.subject import Subject

    console = terminal.console()
    failed = 0
    subject = NoiseSubject(name, device) if is_noise(name) else Subject(name, device)
    if isinstance(subject, Subject):
        results, count = conformance.run_checks(subject), len(conformance.CHECKS)
    else:
        results, count = noises.run_checks(subject), len(noises.CHECKS)
    verdict = "keeps its contract"
    for result in results:
        failed += result.outcome == "fail"
        if failed:
            verdict = f"{failed} of {plural(count, 'check')} failed"
        if result.fatal:
            verdict = "breaks its contract; no further check was run"
        colour = {"pass": "green", "fail": "bold red", "skip": "dim"}[result.outcome]
        begin = f"{result.outcome}  {result.name:<38} "
        line = Text(terminal.wrapped(result.why, begin, indent=" " * 6))
        line.stylize(colour, 0, len(result.outcome))
        console.print(line, soft_wrap=True)
    if not failed and isinstance(subject, Subject):
        print_sensitivity(subject)
    console.print(f"{name}: {verdict}")
    return not failed


def print_sensitivity(subject: Subject) -> None:
    """Print the share of each noise in a bonus, and with how many transitions it was measured."""
    from ssedb.testing import conformance
    from ssedb.testing.subject import NOISE_DRAWS, SAMPLES

    console = terminal.console()
    console.print("\nshare of noise in the bonus (0 is blind to it, 1 sees nothing else),")
    measured = f"{SAMPLES} transitions under {NOISE_DRAWS} draws of the noise"
    console.print(f"hardly trained, measured with {measured}:")
    for noise, share in conformance.sensitivity(subject).items():
        found = "the bonus does not vary" if share is None else f"{share:.2f}"
        console.print(f"  {noise:<12} {found}")
    if not conformance.clean_bonus_varies(subject):
        console.print(f"note: without noise the bonus is the same for all {SAMPLES} transitions;")
        console.print("the shares say little then")
    console.print("`ssedb analyze probe` measures a trained run\n")
