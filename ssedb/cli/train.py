"""`ssedb train`: train an agent, or continue a run with --resume."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse, setting_names
from ssedb.config import TrainConfig
from ssedb.engine import distributed
from ssedb.envs.names import atari_game, env_label, rooms_world
from ssedb.errors import ConfigError, TrainingError
from ssedb.options import OPTIONS, canonical_bonus, options_class
from ssedb.runs.alarms import Alarm
from ssedb.runs.folder import RunFolder, resume_command, saved_config, what_is_saved
from ssedb.runs.signals import ending_signals, handled

if TYPE_CHECKING:
    from ssedb.runs.loop import TrainResult

PRINTED = (
    "states_share", "rooms_share", "bonus_raw", "i_upper", "i_pred", "i_nce", "i_nce_chance",
    "rank_z", "rank_state",
)  # fmt: skip
"""Metrics that the summary of a run shows, where the run has them."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    if distributed.rank() > 0 and not {"-h", "--help"} & set(args):
        from ssedb.runs.loop import train_along  # the first process reads the flags for all

        return 0 if train_along().finished else 130
    if not args:
        raise ConfigError(
            "name at least what to train on, such as `ssedb train --env alien`; "
            "`ssedb train --help` explains the flags"
        )
    config, resume = parse_train(args)
    # Until there is something to save, these end the run as Ctrl-C does.
    with handled(signal.default_int_handler, *ending_signals()):
        return _train(config, resume)


def _train(config: TrainConfig, resume: Path | None) -> int:
    run = RunFolder.create(config) if resume is None else RunFolder.reopen(resume, **vars(config))
    try:
        with contextlib.closing(run):  # importing torch takes seconds, in which it may be stopped
            print(terminal.wrapped(_opening(run.config)), file=sys.stderr)
            from ssedb.runs import progress
            from ssedb.runs.loop import train_in

            result = train_in(run, progress.console())
    except TrainingError as error:
        if run.moved:  # what is there now is of another run
            raise
        raise TrainingError(f"{error}; {what_is_saved(run.config.out, error)}") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(what_is_saved(run.config.out)) from None
    print_run(result, run.config)
    return 0 if result.finished else 130


def _opening(config: TrainConfig) -> str:
    """Return what runs, and for how long, in one line."""
    bonus = "no bonus" if config.bonus == "none" else config.bonus
    noise = "without noise" if config.noise == "none" else f"under {config.noise_label}"
    steps = math.ceil(config.steps / config.rollout_size) * config.rollout_size
    return (
        f"{bonus} on {env_label(config.env, config.env_kwargs)} {noise}, "
        f"preset {config.preset}, {steps:,} steps, into {config.out}"
    )


def parse_train(args: list[str]) -> tuple[TrainConfig, Path | None]:
    """Return the settings that the flags describe, and the folder to resume, if any.

    Some flags set the defaults of others (a preset the sizes, a game its alphas): read first.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("env", "noise", "bonus", "preset", "fidelity", "resume"):
        first.add_argument(f"--{name}")
    # The bonus model's rate, too, unless that is given.
    first.add_argument("--learning-rate", "--learning_rate", type=float)
    try:
        found = vars(first.parse_known_args(args)[0])
        early = {name: value for name, value in found.items() if value is not None}
    except argparse.ArgumentError:  # a flag without its value: the real parser says it better
        early = {}
    resume = early.pop("resume", None)
    default = TrainConfig(**early) if resume is None else saved_config(Path(resume))
    asked = canonical_bonus(early.get("bonus", default.bonus))
    if resume is not None and asked != default.bonus:  # another bonus has other flags
        raise ConfigError(
            f"{resume} is a run with bonus={default.bonus}, not {early['bonus']}; a resumed run "
            "keeps its settings, so leave it out or start a new run"
        )
    options = options_class(default.bonus)
    _refuse_options_of_others(args, default.bonus, options)
    help = tyro.conf.arg(help="Continue the run in this folder with its own settings.")
    fields = {
        "config": (Annotated[TrainConfig, tyro.conf.arg(name="")], default),
        "options": (Annotated[options, tyro.conf.arg(name="")], options(**default.bonus_options)),
        "resume": (Annotated[Path | None, help], None),
    }
    spec = dataclasses.make_dataclass(
        "Train", [(k, t, dataclasses.field(default=v)) for k, (t, v) in fields.items()]
    )
    spec.__doc__ = "Train an agent that explores with no reward."
    parsed: Any = parse(spec, args, "train")
    bonus_options = dataclasses.asdict(parsed.options)
    return dataclasses.replace(parsed.config, bonus_options=bonus_options), parsed.resume


def _refuse_options_of_others(args: list[str], bonus: str, options: type[Any]) -> None:
    """Raise ConfigError for an option of another bonus; `--help` alone lists those of DB."""
    known = setting_names(TrainConfig) | setting_names(options)
    for flag in (word.partition("=")[0] for word in args if word.startswith("--")):
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        owners = [other for other, cls in OPTIONS.items() if name in setting_names(cls)]
        if owners and name not in known:
            raise ConfigError(
                f"{flag} is an option of {' and '.join(owners)}, not of {bonus}; "
                f"see `ssedb train --bonus {bonus} --help`"
            )


def print_run(result: TrainResult, config: TrainConfig) -> None:
    """Print what a run did, and where it is."""
    from rich.table import Table

    from ssedb.compare.measures import label

    last, score = result.summary["last"], result.summary["score"]
    asked = f"(asked for {config.steps:,}, in rollouts of {config.rollout_size:,})"
    if not result.finished:
        asked = f"of {config.steps:,}"
    title = f"{config.bonus} on {config.env}, noise {config.noise_label}"
    table = Table(title=title, show_header=False)
    table.add_row("agent steps", f"{result.steps:,} {asked}")
    if last:
        table.add_row(label("sps"), f"{last['sps']:,.0f} (last update)")
    table.add_row("episodes ended", f"{result.summary['episodes']:,}")
    scores = ("no episode has ended yet", "-")
    if score is not None:
        scores = (f"{score:.2f}", f"{result.summary['score_best']:.2f}")
    table.add_row(label("score"), scores[0])
    table.add_row(label("score_best"), scores[1])
    for key in PRINTED:
        if key in last:
            digits = ".3f" if abs(last[key]) >= 0.1 else ".3g"  # a small bonus is not 0.000
            table.add_row(label(key), f"{last[key]:{digits}}")
    terminal.print_table(table)
    for alarm in result.summary.get("alarms", []):
        print(terminal.wrapped(f"ALARM: {Alarm(**alarm).text(vars(config))}"))
    places: dict[str, object] = {"run folder": result.out}
    places["metrics"] = result.out / "metrics.jsonl"
    places["curves"] = f"tensorboard --logdir {shlex.quote(str(result.out / 'tb'))}"
    if last:
        pictures = atari_game(config.env) or rooms_world(config.env)
        video = " --video" if pictures else ""  # others may be vectors
        places["watch it"] = f"ssedb eval {shlex.quote(str(result.out))} --episodes 5{video}"
    terminal.print_places(places)
    if not result.finished:
        print(terminal.literal(f"stopped early; go on with: {resume_command(result.out)}"))
