"""`ssedb train`: train an agent, or go on with --resume."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse, setting_names
from ssedb.config import TrainConfig
from ssedb.engine import distributed
from ssedb.errors import ConfigError, TrainingError
from ssedb.options import OPTIONS, canonical_bonus, options_class
from ssedb.runs.alarms import Alarm
from ssedb.runs.folder import RunFolder, resume_command, saved_config, what_is_saved

if TYPE_CHECKING:
    from ssedb.runs.loop import TrainResult


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    if distributed.rank() > 0 and not {"-h", "--help"} & set(args):
        from ssedb.runs.loop import train_along  # the first process reads the flags for all

        return 0 if train_along().finished else 130
    config, resume = parse_train(args)
    if resume is None:
        run = RunFolder.create(config)
    else:
        run = RunFolder.reopen(
            resume, **{f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        )
    try:
        with contextlib.closing(run):  # importing torch takes seconds, in which it may be stopped
            from ssedb.runs import progress
            from ssedb.runs.loop import train_in

            result = train_in(run, progress.console())
    except TrainingError as error:
        raise TrainingError(f"{error}; {what_is_saved(run.path)}") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(what_is_saved(run.path)) from None
    print_run(result, run.config)
    return 0 if result.finished else 130


def parse_train(args: list[str]) -> tuple[TrainConfig, Path | None]:
    """Return the settings that the flags describe, and the folder to resume if one is named.

    Some flags set the defaults of others (a preset the sizes, a game its alphas): read first.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    names = ("env", "noise", "bonus", "preset", "fidelity", "resume")
    for name in names:
        first.add_argument(f"--{name}")
    # The bonus model's rate, too, unless that is given.
    first.add_argument("--learning-rate", "--learning_rate", type=float)
    try:
        early = {
            name: value
            for name, value in vars(first.parse_known_args(args)[0]).items()
            if value is not None
        }
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
    spec = dataclasses.make_dataclass(
        "Train",
        [
            (
                "config",
                Annotated[TrainConfig, tyro.conf.arg(name="")],
                dataclasses.field(default=default),
            ),
            (
                "options",
                Annotated[options, tyro.conf.arg(name="")],
                dataclasses.field(default=options(**default.bonus_options)),
            ),
            (
                "resume",
                Annotated[
                    Path | None,
                    tyro.conf.arg(help="Go on with the run in this folder; it keeps its settings."),
                ],
                dataclasses.field(default=None),
            ),
        ],
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
        owners = (
            []
            if name in known
            else [other for other, of_other in OPTIONS.items() if name in setting_names(of_other)]
        )
        if owners:
            raise ConfigError(
                f"{flag} is an option of {owners[0]}, not of {bonus}; "
                f"see `ssedb train --bonus {bonus} --help`"
            )


def print_run(result: TrainResult, config: TrainConfig) -> None:
    """Print what a run did, and where it is."""
    from rich.table import Table

    last = result.summary["last"]
    console = terminal.console()
    table = Table(
        title=f"{config.bonus} on {config.env}, noise {config.noise}",
        show_header=False,
        title_justify="left",
    )
    table.add_row(
        "agent steps",
        f"{result.steps:,} (asked for {config.steps:,}, in rollouts of {config.rollout_size:,})",
    )
    if last:
        table.add_row("steps per second", f"{last['sps']:,.0f} (last update)")
    score = result.summary["score"]
    table.add_row("episodes ended", f"{result.summary['episodes']:,}")
    table.add_row(
        "score, mean of the last 100",
        "no episode has ended yet" if score is None else f"{score:.2f}",
    )
    table.add_row("score, best", "-" if score is None else f"{result.summary['score_best']:.2f}")
    names = {
        "bonus_raw": "bonus, mean before normalisation",
        "i_upper": "I_upper (nats in z)",
        "i_pred": "I_pred (log-likelihood)",
        "i_nce": "I_nce",
        "i_nce_chance": "I_nce of blind guessing",
        "rank_z": "rank of z, the representation",
        "rank_state": "rank of the encoded states",
    }
    for name, label in names.items():
        if name in last:
            table.add_row(label, f"{last[name]:.3f}")
    terminal.print_table(console, table)
    for alarm in result.summary.get("alarms", []):
        print(terminal.wrapped(f"ALARM: {Alarm(**alarm).text(vars(config))}"))
    console.print(f"run folder   {result.out}", soft_wrap=True)
    console.print(f"metrics      {result.out / 'metrics.jsonl'}", soft_wrap=True)
    console.print(
        f"curves       tensorboard --logdir {shlex.quote(str(result.out / 'tb'))}", soft_wrap=True
    )
    if last:
        console.print(
            f"watch it     ssedb eval {shlex.quote(str(result.out))} --episodes 5 --video",
            soft_wrap=True,
        )
    if not result.finished:
        console.print(f"stopped early; go on with: {resume_command(result.out)}", soft_wrap=True)
