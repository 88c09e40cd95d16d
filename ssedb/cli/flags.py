"""What the command line takes: the flags of each command, and how they are read. Waits for no torch."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import io
import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tyro

from ssedb.config import TrainConfig, toml_value
from ssedb.errors import ConfigError
from ssedb.options import OPTIONS, Preset, canonical_bonus, options_class
from ssedb.runs.folder import saved_config
from ssedb.validate import MOST

T = TypeVar("T")


@dataclass(frozen=True)
class Eval:
    """Play episodes with a trained agent and print their scores."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int = 10
    """Episodes to play."""
    video: bool = False
    """Also write the first episode, as the agent sees it, to the run's videos/ (needs `pip install ssedb[report]`)."""
    seed: int = 1000
    """Seed of the episodes."""
    device: str = "auto"
    """Where to run the policy: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Bench:
    """Measure how fast each part of training runs here, and how near the whole comes to the sum of its parts."""

    env: str | None = None
    """The game, or rooms; breakout unless given, with the preset rooms the small Rooms."""
    noise: str = "none"
    """What disturbs the agent; `ssedb list noises` shows the choices."""
    preset: Preset = "paper"
    """Sizes of networks and rollout."""
    device: str = "auto"
    """Where to learn: auto, cpu, cuda or cuda:N."""
    num_envs: int | None = None
    """Environments side by side; the preset's unless given."""
    updates: int = 2
    """Whole training updates to time."""
    precision: Literal["bf16", "tf32", "fp32"] = "bf16"
    """Of the networks on a GPU."""
    engine: Literal["auto", "eager", "fast"] = "auto"
    """How to run: `fast` replays CUDA graphs and learns beside play; auto does so on a GPU."""
    all: bool = False
    """On a GPU: every noise on raw frames, every rival, updates alone and Rooms as well (about six minutes)."""


@dataclass(frozen=True)
class Probe:
    """Measure whether a run's bonus is blind to noise and, on Rooms, whether it fades with visits."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    fresh: bool = False
    """Probe an untrained bonus of the same kind instead."""
    noise: str | None = None
    """Another noise than the run's."""
    transitions: int = 1024
    """How many transitions are looked at."""
    draws: int = 8
    """How many draws of the noise each gets."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Spikes:
    """Play an episode and find where its bonus spikes: the curve, the frames, clips, and the whole as a video."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    seed: int = 1000
    """Seed of the episode."""
    steps: int = 4500
    """Stop the episode after so many steps."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Tsne(Spikes):
    """Draw an episode as the bonus represents it, in two dimensions, and measure whether consecutive steps lie together."""

    compare: Path | None = None
    """Folder of another run on the same env, to represent the same episode."""


@dataclass(frozen=True)
class Report:
    """Make a page of runs: statistics, curves, episodes to explore, maps. It opens in a browser, offline."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that hold runs, at any depth."""
    out: Path = Path("report")
    """Folder for the page; an older report there is replaced."""
    single_file: bool = False
    """Put everything into one HTML file: OUT/index.html, or OUT itself if it ends in .html."""
    episodes: int = 12
    """How many agents play an episode for the explorer, one for each env, noise and method; 0 for none."""
    title: str = ""
    """Title of the page; the folders' names unless given."""
    device: str = "auto"
    """Where to play the episodes: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Demo:
    """Show why noise fools curiosity and not DB: train DB, RND and a random agent on noisy Rooms, and compare."""

    env: str = "rooms-small"
    """Which Rooms world."""
    noise: str = "random-box"
    """What disturbs the agents; `ssedb list noises` shows the choices."""
    steps: int = 20_480
    """Agent steps of each run."""
    seeds: int = 2
    """Runs of each method."""
    out: Path = Path("runs/demo")
    """Folder for the pictures and numbers; what is there is replaced."""


@dataclass(frozen=True)
class Sweep:
    """Train every run of a grid file, several at a time; run again, it does only what is missing."""

    grid: tyro.conf.Positional[Path]
    """The grid file, such as experiments/quick.toml (docs/sweeps.md explains the format)."""
    out: Path | None = None
    """Folder for the runs; runs/NAME unless given."""
    set: tuple[str, ...] = ()
    """Settings or axes other than the file's, as KEY=VALUE: steps=100000, seed=[0,1], 'bonus=["db","rnd"]'."""
    jobs: int | None = None
    """Runs at a time; by cores and measured memory unless given."""
    device: str = "auto"
    """Where to learn: auto, cpu, cuda or cuda:N."""
    dry_run: bool = False
    """Print the plan, with time and disk estimated by a short calibration here, and do nothing."""
    minutes: float | None = None
    """Let every run save and stop after so many minutes."""
    retries: int = 1
    """How often a run whose process died is taken up again."""
    ray: str | None = None
    """Run on Ray: auto (the cluster this machine belongs to), local (a Ray of its own here), or ray://HOST:PORT."""
    cpus: float = 1
    """On Ray: CPUs that a run is given."""
    gpus: float | None = None
    """On Ray: the share of a GPU that a run is given; 0.25 where the cluster has GPUs unless given."""


@dataclass(frozen=True)
class Stats:
    """Compare many runs: tables with 95% intervals, aggregates, probabilities of improvement, figures."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that hold runs, at any depth."""
    out: Path | None = None
    """Folder for the tables and figures; stats/ in the first folder unless given."""
    measures: tuple[str, ...] = ()
    """What to compare (such as states_share score area:score i_nce); the first one is compared between methods."""
    figures: bool = True
    """Draw the figures too (needs `pip install ssedb[report]`)."""


TheoryPart = Literal["theorem1", "theorem2", "infonce", "regret", "network"]


@dataclass(frozen=True)
class Theory:
    """Check the paper's theory in numbers: information gain, UCB and count bonuses, regret, InfoNCE, the network."""

    parts: tuple[TheoryPart, ...] = get_args(TheoryPart)
    """What to measure; everything unless given."""
    quick: bool = False
    """Smaller sizes, about a minute in all."""
    seed: int = 0
    """Seed of everything that is drawn."""
    out: Path = Path("runs/theory")
    """Folder for the figures and numbers; what is there is replaced."""


@dataclass(frozen=True)
class Check:
    """Check that a bonus or a noise keeps its contract (docs/conformance.md)."""

    name: tyro.conf.Positional[str]
    """A bonus or noise of `ssedb list`, or a class of your own as package.module:Class."""
    device: str = "cpu"
    """Where to compute: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class List:
    """Show what can be chosen."""

    what: tyro.conf.Positional[Literal["envs", "noises", "bonuses"]]
    """envs, noises or bonuses."""


def parse_train(args: list[str]) -> tuple[TrainConfig, Path | None]:
    """The run that the flags describe, and the folder to resume if one is named.

    Some flags set the defaults of others (a preset the sizes, a game its alphas), so they are read first.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    names = ("env", "noise", "bonus", "preset", "fidelity", "resume")
    for name in names:
        first.add_argument(f"--{name}")
    first.add_argument(
        "--learning-rate", "--learning_rate", type=float
    )  # the bonus model's unless that is given, too
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
    if (
        resume is not None and canonical_bonus(early.get("bonus", default.bonus)) != default.bonus
    ):  # it has other flags
        raise ConfigError(
            f"{resume} is a run with bonus={default.bonus}, not {early['bonus']}; a resumed run keeps its settings, "
            "so leave it out or start a new run"
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
    return dataclasses.replace(
        parsed.config, bonus_options=dataclasses.asdict(parsed.options)
    ), parsed.resume


def _refuse_options_of_others(args: list[str], bonus: str, options: type[Any]) -> None:
    """`--help` lists the options of DB unless it is told of another bonus, which may not have them."""
    known = _names(TrainConfig) | _names(options)
    for flag in (word.partition("=")[0] for word in args if word.startswith("--")):
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        owners = (
            []
            if name in known
            else [other for other, of_other in OPTIONS.items() if name in _names(of_other)]
        )
        if owners:
            raise ConfigError(
                f"{flag} is an option of {owners[0]}, not of {bonus}; see `ssedb train --bonus {bonus} --help`"
            )


def _names(cls: type[Any]) -> set[str]:
    """The settings of a dataclass; those of a dataclass in it, Annotated as `parse_train` has it, are its own."""
    names: set[str] = set()
    for field in dataclasses.fields(cls):
        inner = next(iter(get_args(field.type)), None)
        names |= (
            _names(inner)
            if isinstance(inner, type) and dataclasses.is_dataclass(inner)
            else {field.name}
        )
    return names


_types = tyro.constructors.ConstructorRegistry()


@_types.primitive_rule
def _whole_number(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    """1e6 is a million, and a whole number."""
    if info.type is not int:
        return None

    def read(words: list[str]) -> int:
        try:
            number = float(words[0])
        except ValueError:
            number = math.nan
        if not number.is_integer():
            raise ValueError(f"{words[0]!r} is no whole number")
        if abs(number) > MOST:
            raise ValueError(f"{words[0]!r} is too large; use at most {MOST:,}")
        return int(number)

    return tyro.constructors.PrimitiveConstructorSpec(
        1, "INT", read, lambda x: type(x) is int, lambda number: [str(number)]
    )


@_types.primitive_rule
def _table(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """A table is written as KEY=VALUE words."""
    if get_origin(info.type) is not Mapping:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        "*",
        "KEY=VALUE",
        lambda words: dict(map(key_value, words)),
        lambda value: isinstance(value, Mapping),
        lambda table: [f"{key}={toml_value(value)}" for key, value in table.items()],
    )


def key_value(text: str) -> tuple[str, Any]:
    """Read `steps=1000` or `seed=[0,1]`, the value as TOML has it; a bare word is text, but True and False are not."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text!r}: write KEY=VALUE, such as size=8 or goals=[0,1]")
    try:
        return key, tomllib.loads(f"x = {value.lower() if value in ('True', 'False') else value}")[
            "x"
        ]
    except tomllib.TOMLDecodeError:
        return key, value


def parse(spec: type[T], args: Sequence[str], command: str) -> T:
    """Flags to a dataclass; a wrong flag is a ConfigError of one line rather than tyro's box."""
    _refuse_unknown_flags(_names(spec), args, command)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(spec, args=list(args), prog=f"ssedb {command}", registry=_types)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ConfigError(
            f"{_first_section(said.getvalue())}; `ssedb {command} --help` explains the flags"
        ) from None


def _refuse_unknown_flags(names: set[str], args: Sequence[str], command: str) -> None:
    """Raise ConfigError for a table given twice, or a flag that a command does not have, with those it may be meant for."""
    known = [name.replace("_", "-") for name in sorted({"help", *names})]
    flags = [word.partition("=")[0] for word in args if word.startswith("--") and word != "--"]
    for flag in ("--set", "--env-kwargs"):  # of others the last counts, as in any command
        if [word.replace("_", "-") for word in flags].count(flag) > 1:
            raise ConfigError(f"{flag} is given twice; write all its KEY=VALUE after one")
    for flag in flags:
        prefix = "--no-" if flag.startswith("--no-") else "--"
        name = flag.removeprefix(prefix).replace("_", "-")
        if not {name, flag[2:].replace("_", "-")} & set(known) and not name.startswith("tyro-"):
            near = " or ".join(
                prefix + other for other in difflib.get_close_matches(name, known, 2, 0.65)
            )
            meant = f"did you mean {near}? " if near else ""
            raise ConfigError(
                f"there is no flag {flag}; {meant}`ssedb {command} --help` explains the flags"
            )


def _first_section(box: str) -> str:
    """The complaint in tyro's box, without its title and the help texts. Where UTF-8 is missing the box has no sides."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    sections = itertools.groupby(lines, key=lambda line: set(line) <= set("─-╰╯"))
    return next((" ".join(section).rstrip(".") for ruled, section in sections if not ruled), "")
