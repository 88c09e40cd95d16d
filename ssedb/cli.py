"""The command line. Thin: flags in, one call, a summary out. Nothing here waits for torch before the input is checked."""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import tyro

from ssedb import __version__, parallel
from ssedb.config import TrainConfig
from ssedb.envs.names import GAMES, NOISES, atari_games, rooms_world
from ssedb.errors import ConfigError, TrainingError
from ssedb.options import Preset, bonus_names, canonical_bonus, options_class
from ssedb.runlog import RunFolder, require_checkpoint, saved_config

T = TypeVar("T")


@dataclass(frozen=True)
class EvalArgs:
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
class BenchArgs:
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
    all: bool = False
    """On a GPU: every noise on raw frames, every rival, updates alone and Rooms as well (about four minutes)."""


@dataclass(frozen=True)
class ProbeArgs:
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
class SpikesArgs:
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
class TsneArgs:
    """Draw an episode as the bonus represents it, in two dimensions, and measure whether consecutive steps lie together."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    compare: Path | None = None
    """Folder of another run on the same env, to represent the same episode."""
    seed: int = 1000
    """Seed of the episode."""
    steps: int = 4500
    """Stop the episode after so many steps."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class ReportArgs:
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
class DemoArgs:
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
class SweepArgs:
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
class StatsArgs:
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
class TheoryArgs:
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
class CheckArgs:
    """Check that a bonus keeps its contract, and show how much each noise moves it (docs/conformance.md)."""

    bonus: tyro.conf.Positional[str]
    """A bonus of `ssedb list bonuses`, or a class of your own as package.module:Class."""
    device: str = "cpu"
    """Where to compute: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class ListArgs:
    """Show what can be chosen."""

    what: tyro.conf.Positional[Literal["envs", "noises", "bonuses"]]
    """envs, noises or bonuses."""


def train(args: list[str]) -> int:
    if parallel.rank() > 0 and not {"-h", "--help"} & set(args):  # the first process reads the flags and tells the others
        from ssedb.run import train_along

        return 0 if train_along().finished else 130
    config, resume = parse_train(args)

    if resume is None:
        _refuse_strangers(config.out)
        run = RunFolder.create(config)
    else:
        run = RunFolder.reopen(resume, **{f.name: getattr(config, f.name) for f in dataclasses.fields(config)})

    from ssedb import progress
    from ssedb.run import train_in
    from ssedb.summary import print_run

    result = train_in(run, progress.console())
    print_run(result, run.config)
    return 0 if result.finished else 130


def _refuse_strangers(out: Path) -> None:
    """A run must not be strewn among other files. (Where there is another run, its folder says so itself.)"""
    if out.is_dir() and not (out / "config.toml").exists():
        others = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
        if others:
            raise ConfigError(f"{out} holds other files ({others[0]}); choose a new or an empty folder for --out")


def parse_train(args: list[str]) -> tuple[TrainConfig, Path | None]:
    """The run that the flags describe, and the folder to resume if one is named.

    Some flags set the defaults of others (a preset the sizes, a game its alphas), so they are read first.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    names = ("env", "noise", "bonus", "preset", "fidelity", "resume")
    for name in names:
        first.add_argument(f"--{name}")
    try:
        early = {name: value for name, value in vars(first.parse_known_args(args)[0]).items() if value is not None}
    except argparse.ArgumentError:  # a flag without its value: the real parser says it better
        early = {}
    resume = early.pop("resume", None)
    default = TrainConfig(**early) if resume is None else saved_config(Path(resume))
    if resume is not None and canonical_bonus(early.get("bonus", default.bonus)) != default.bonus:  # it has other flags
        raise ConfigError(
            f"{resume} is a run with bonus={default.bonus}, not {early['bonus']}; a resumed run keeps its settings, "
            "so leave it out or start a new run"
        )
    options = options_class(default.bonus)
    spec = dataclasses.make_dataclass(
        "Train",
        [
            ("config", Annotated[TrainConfig, tyro.conf.arg(name="")], dataclasses.field(default=default)),
            (
                "options",
                Annotated[options, tyro.conf.arg(name="")],
                dataclasses.field(default=options(**default.bonus_options)),
            ),
            (
                "resume",
                Annotated[Path | None, tyro.conf.arg(help="Go on with the run in this folder; it keeps its settings.")],
                dataclasses.field(default=None),
            ),
        ],
    )
    spec.__doc__ = "Train an agent that explores with no reward."
    parsed: Any = parse(spec, args, "train")
    return dataclasses.replace(parsed.config, bonus_options=dataclasses.asdict(parsed.options)), parsed.resume


def evaluate(args: list[str]) -> int:
    options = parse(EvalArgs, args, "eval")
    from ssedb.evaluate import check, evaluate_run

    check(options.run, options.episodes, options.video)
    from ssedb.summary import print_evaluation

    result = evaluate_run(options.run, options.episodes, video=options.video, seed=options.seed, device=options.device)
    print_evaluation(result)
    return 0


def bench(args: list[str]) -> int:
    options = parse(BenchArgs, args, "bench")
    if options.updates < 1:
        raise ConfigError(f"updates={options.updates}: must be 1 or more")
    sizes: dict[str, Any] = {} if options.num_envs is None else {"num_envs": options.num_envs}
    names = ("noise", "preset", "device", "precision")
    env = options.env or ("rooms-small" if options.preset == "rooms" else "breakout")
    config = TrainConfig(env=env, **{name: getattr(options, name) for name in names}, **sizes)
    if options.all and (config.env not in atari_games() or config.noise != "none"):
        raise ConfigError(f"--all begins with a game without noise, not with {config.env}, noise {config.noise}")
    from ssedb.bench import run_all, run_bench
    from ssedb.engine import pick_device

    if options.all and pick_device(config.device).type != "cuda":
        raise ConfigError(f"--all is for a GPU, and device={config.device!r} is a CPU here; leave --all out")
    (run_all if options.all else run_bench)(config, options.updates)
    return 0


def analyze(args: list[str]) -> int:
    analyses: dict[str, tuple[Callable[[list[str]], int], str]] = {
        "probe": (probe, "is the bonus blind to noise, does it fade with visits?"),
        "spikes": (spikes, "where along an episode does the bonus spike, and what is on the screen there?"),
        "tsne": (tsne, "does the representation keep together what follows in time?"),
    }
    if not args or args[0] in ("-h", "--help"):
        print("usage: ssedb analyze ANALYSIS RUN [flags]\n")
        for name, (_, meaning) in analyses.items():
            print(f"  {name:<8} {meaning}")
        return 0
    if args[0] not in analyses:
        raise ConfigError(f"unknown analysis {args[0]!r}; use {' or '.join(analyses)}")
    return analyses[args[0]][0](args[1:])


def probe(args: list[str]) -> int:
    options = parse(ProbeArgs, args, "analyze probe")
    config = saved_config(options.run)
    if options.noise is not None:
        config = dataclasses.replace(config, noise=options.noise)
    require_checkpoint(options.run, config)
    if find_spec("matplotlib") is None:
        raise ConfigError("matplotlib is not installed; run `pip install ssedb[report]`")
    from ssedb.analysis.probe import probe_run
    from ssedb.summary import print_probe

    result, picture = probe_run(
        options.run,
        fresh=options.fresh,
        noise=options.noise,
        transitions=options.transitions,
        draws=options.draws,
        device=options.device,
    )
    print_probe(result, config.bonus, picture)
    return 0


def spikes(args: list[str]) -> int:
    options = parse(SpikesArgs, args, "analyze spikes")
    _check_episode(options.run, options.steps, options.seed)
    from ssedb.analysis.spikes import spikes_of_run
    from ssedb.progress import console
    from ssedb.summary import print_spikes

    found = spikes_of_run(options.run, seed=options.seed, max_steps=options.steps, device=options.device, progress=console())
    print_spikes(found)
    return 0


def tsne(args: list[str]) -> int:
    options = parse(TsneArgs, args, "analyze tsne")
    _check_episode(options.run, options.steps, options.seed)
    if options.compare is not None:
        _check_episode(options.compare, options.steps, options.seed)
    from ssedb.analysis.tsne import tsne_of_run
    from ssedb.progress import console
    from ssedb.summary import print_maps

    maps, folder = tsne_of_run(
        options.run,
        options.compare,
        seed=options.seed,
        max_steps=options.steps,
        device=options.device,
        progress=console(),
    )
    print_maps(maps, folder)
    return 0


def _check_episode(run: Path, steps: int, seed: int) -> None:
    require_checkpoint(run, saved_config(run))
    if steps < 1:
        raise ConfigError(f"steps={steps}: must be 1 or more")
    if seed < 0:
        raise ConfigError(f"seed={seed}: must be 0 or more")
    _need_report_extra()


def _need_report_extra() -> None:
    missing = [name for name in ("matplotlib", "sklearn", "av") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{missing[0]} is not installed; run `pip install ssedb[report]`")


def report(args: list[str]) -> int:
    options = parse(ReportArgs, args, "report")
    if not options.runs:
        raise ConfigError("no folder of runs is named; use `ssedb report runs/`")
    if options.episodes < 0:
        raise ConfigError(f"episodes={options.episodes}: must be 0 or more")
    for folder in options.runs:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}; name one that holds runs")
    _need_report_extra()
    from ssedb.progress import console
    from ssedb.report.make import make_report

    index = make_report(
        options.runs,
        options.out,
        single_file=options.single_file,
        episodes=options.episodes,
        title=options.title,
        device=options.device,
        progress=console(),
    )
    print(f"open in a browser  {index}")
    return 0


def demo(args: list[str]) -> int:
    options = parse(DemoArgs, args, "demo")
    config = TrainConfig(
        env=options.env, noise=options.noise, steps=options.steps, preset="rooms", fidelity="ours", out=options.out
    )
    if rooms_world(config.env) is None:
        raise ConfigError(
            f"env={config.env}: the demo needs a world whose truth is known; use rooms-small, rooms or rooms-large"
        )
    if options.seeds < 1:
        raise ConfigError(f"seeds={options.seeds}: must be 1 or more")
    from ssedb.demo import run_demo

    run_demo(config, options.seeds)
    return 0


def sweep(args: list[str]) -> int:
    options = parse(SweepArgs, args, "sweep")
    from ssedb.sweep.grid import parse_override, read_grid

    limits = {"jobs": 1, "retries": 0, "minutes": 0, "cpus": 0, "gpus": 0}
    for name, least in limits.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"{name}={value}: must be {least} or more")
    if options.ray is not None:
        for name in ("jobs", "minutes"):
            if getattr(options, name) is not None:
                raise ConfigError(
                    f"{name}={getattr(options, name)}: Ray has its own scheduler; leave it out, or leave --ray out"
                )
    if options.ray is not None and find_spec("ray") is None:
        raise ConfigError("Ray is not installed; run `pip install ssedb[ray]`, or leave --ray out")
    overrides = dict(map(parse_override, options.set))
    if options.device != "auto":
        overrides["device"] = options.device
    grid = read_grid(options.grid, options.out, overrides)
    device = grid.runs[0].config.device
    if grid.probe and find_spec("matplotlib") is None:
        raise ConfigError("the grid asks for the probe and matplotlib is not installed; run `pip install ssedb[report]`")
    root = grid.runs[0].folder.parent
    if options.dry_run:
        from ssedb.sweep.estimate import print_estimate

        print_estimate(grid, root, options.jobs)
        return 0
    if options.ray is None:
        _check_devices({(run.config.device, run.config.engine) for run in grid.runs})
    from ssedb.sweep.run import run_sweep

    outcome = run_sweep(
        grid,
        root,
        device=device,
        jobs=options.jobs,
        retries=options.retries,
        minutes=options.minutes,
        ray=options.ray,
        cpus=options.cpus,
        gpus=options.gpus,
    )
    return 130 if outcome.stopped else 1 if outcome.failed else 0


def _check_devices(asked: set[tuple[str, str]]) -> None:
    """A GPU that is asked for and not there is one mistake, not one of each run."""
    for device, kind in sorted(asked):
        if device.startswith("cuda") or kind == "fast":
            from ssedb.engine import is_fast, pick_device

            is_fast(kind, pick_device(device))


def stats(args: list[str]) -> int:
    options = parse(StatsArgs, args, "stats")
    if not options.runs:
        raise ConfigError("no folder is named; use `ssedb stats runs/quick`")
    from ssedb.tables import write_stats

    write_stats(options.runs, options.out or options.runs[0] / "stats", options.measures, options.figures)
    return 0


def check(args: list[str]) -> int:
    options = parse(CheckArgs, args, "check")
    config = TrainConfig(env="rooms-small", bonus=options.bonus, device=options.device)  # names the mistakes
    from ssedb.summary import print_checks

    return 0 if print_checks(config.bonus, config.device) else 1


def theory(args: list[str]) -> int:
    options = parse(TheoryArgs, args, "theory")
    if options.seed < 0:
        raise ConfigError(f"seed={options.seed}: must be 0 or more")
    if not options.parts:
        raise ConfigError("parts is empty; name at least one, or leave the flag out")
    if find_spec("matplotlib") is None:
        raise ConfigError("matplotlib is not installed; run `pip install ssedb[report]`")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {options.out}: {error.strerror}; choose another --out") from None
    from ssedb.theory.report import run_theory

    run_theory(list(dict.fromkeys(options.parts)), options.out, quick=options.quick, seed=options.seed)
    return 0


def show_list(args: list[str]) -> int:
    what = parse(ListArgs, args, "list").what
    if what == "envs":
        rest = [game for game in atari_games() if game not in GAMES]
        print(f"the suite ({len(GAMES)}):\n  " + " ".join(GAMES))
        print(f"every other Atari game ({len(rest)}):\n  " + " ".join(rest))
        print("a world whose true state is known:\n  rooms rooms-small rooms-large (another layout: rooms@7)")
        print("and any Gymnasium id with image observations and discrete actions")
    elif what == "noises":
        for name, meaning in NOISES.items():
            print(f"{name:<12} {meaning}")
    else:
        from ssedb.summary import print_bonuses

        print_bonuses(bonus_names())
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "train": (train, "train an agent, or go on with --resume"),
    "eval": (evaluate, "play episodes with a trained agent"),
    "demo": (demo, "see in minutes why noise fools curiosity and not DB"),
    "sweep": (sweep, "train a whole grid of runs; again, only what is missing"),
    "stats": (stats, "tables and figures of many runs"),
    "analyze": (analyze, "see what a bonus has learned: probe, spikes, tsne"),
    "check": (check, "check a bonus, ours or yours, against the contract"),
    "theory": (theory, "check the paper's theory in numbers"),
    "report": (report, "make a page of runs to look at in a browser"),
    "bench": (bench, "measure the speed of training here"),
    "list": (show_list, "show the envs, noises or bonuses there are"),
}


def parse(spec: Callable[..., T], args: Sequence[str], command: str) -> T:
    """Flags to a dataclass; a wrong flag is a ConfigError of one line rather than tyro's box."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(spec, args=list(args), prog=f"ssedb {command}")
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ConfigError(f"{_first_section(said.getvalue())}; `ssedb {command} --help` explains the flags") from None


def _first_section(box: str) -> str:
    """The complaint in tyro's box, and the flags it suggests, without the help texts."""
    lines = [line.strip("│ ") for line in box.splitlines() if line.startswith("│")]
    complaint = " ".join(itertools.takewhile(lambda line: not line.startswith("─"), lines))
    near = [line.split()[0] for line in lines if line.startswith("--")]
    return complaint.rstrip(".") + (f"; did you mean {' or '.join(near[:3])}?" if "Perhaps you meant:" in lines else "")


def main(argv: Sequence[str] | None = None) -> int:
    # Torch's threads would otherwise spin between operations on the cores that the emulators need.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if os.getcwd() not in sys.path:  # `--bonus my.module:Class` finds a module of the project it is run in
        sys.path.append(os.getcwd())
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return dispatch(args)
    except ConfigError as error:
        print(f"ssedb: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (TrainingError, OSError) as error:
        if parallel.rank() == 0 or isinstance(error, OSError):  # what stops the training stops all processes
            print(f"ssedb: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ssedb: stopped; what was saved before is intact", file=sys.stderr)
        return 130


def dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print("usage: ssedb COMMAND [flags]\n\nExploration with no reward that noise does not fool.\n")
        for name, (_, meaning) in COMMANDS.items():
            print(f"  {name:<8} {meaning}")
        print("\n`ssedb COMMAND --help` explains every flag.")
        return 0
    if args[0] == "--version":
        print(__version__)
        return 0
    if args[0] not in COMMANDS:
        raise ConfigError(f"unknown command {args[0]!r}; use one of {', '.join(COMMANDS)}")
    if parallel.size() > 1 and args[0] != "train":
        raise ConfigError(f"`ssedb {args[0]}` runs in one process, not in {parallel.size()}; leave torchrun out")
    return COMMANDS[args[0]][0](args[1:])


if __name__ == "__main__":
    sys.exit(main())
