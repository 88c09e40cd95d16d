"""The command line. Thin: flags in, one call, a summary out. Nothing here waits for torch before the input is checked."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ssedb import __version__
from ssedb.cli import flags
from ssedb.cli.flags import parse, parse_train
from ssedb.config import TrainConfig
from ssedb.engine import distributed
from ssedb.envs.names import GAMES, atari_games, rooms_world
from ssedb.errors import ConfigError, Note, TrainingError
from ssedb.noises import about_noises, is_noise
from ssedb.options import bonus_names
from ssedb.runs.folder import (
    RunFolder,
    locked,
    refuse_strangers,
    require_checkpoint,
    require_writable,
    saved_config,
    what_is_saved,
)
from ssedb.terminal import print_pairs, wrapped


def train(args: list[str]) -> int:
    if distributed.rank() > 0 and not {"-h", "--help"} & set(
        args
    ):  # the first process reads the flags and tells the others
        from ssedb.runs.loop import train_along

        return 0 if train_along().finished else 130
    config, resume = parse_train(args)

    if resume is None:
        refuse_strangers(config.out, own="config.toml")
        run = RunFolder.create(config)
    else:
        run = RunFolder.reopen(
            resume, **{f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        )

    try:
        with contextlib.closing(run):  # importing torch takes seconds, in which it may be stopped
            from ssedb.runs import progress
            from ssedb.runs.loop import train_in
            from ssedb.runs.summary import print_run

            result = train_in(run, progress.console())
    except TrainingError as error:
        raise TrainingError(f"{error}; {what_is_saved(run.path)}") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(what_is_saved(run.path)) from None
    print_run(result, run.config)
    return 0 if result.finished else 130


def evaluate(args: list[str]) -> int:
    options = parse(flags.Eval, args, "eval")
    from ssedb.runs import evaluation

    evaluation.check(options.run, options.episodes, options.video, options.seed)
    from ssedb.runs.summary import print_evaluation

    result = evaluation.evaluate(
        options.run, options.episodes, video=options.video, seed=options.seed, device=options.device
    )
    print_evaluation(result)
    return 0


def bench(args: list[str]) -> int:
    options = parse(flags.Bench, args, "bench")
    if options.updates < 1:
        raise ConfigError(f"updates={options.updates}: must be 1 or more")
    sizes: dict[str, Any] = {} if options.num_envs is None else {"num_envs": options.num_envs}
    names = ("noise", "preset", "device", "precision", "engine")
    env = options.env or ("rooms-small" if options.preset == "rooms" else "breakout")
    config = TrainConfig(env=env, **{name: getattr(options, name) for name in names}, **sizes)
    if options.all and (config.env not in atari_games() or config.noise != "none"):
        raise ConfigError(
            f"--all begins with a game without noise, not with {config.env}, noise {config.noise}"
        )
    from ssedb.bench import run_all, run_bench
    from ssedb.engine.host import pick_device

    if options.all and pick_device(config.device).type != "cuda":
        raise ConfigError(
            f"--all is for a GPU, and device={config.device!r} is a CPU here; leave --all out"
        )
    (run_all if options.all else run_bench)(config, options.updates)
    return 0


def analyze(args: list[str]) -> int:
    analyses: dict[str, tuple[Callable[[list[str]], int], str]] = {
        "probe": (probe, "is the bonus blind to noise, does it fade with visits?"),
        "spikes": (
            spikes,
            "where along an episode does the bonus spike, and what is on the screen there?",
        ),
        "tsne": (tsne, "does the representation keep together what follows in time?"),
    }
    if not args or args[0] in ("-h", "--help"):
        print("usage: ssedb analyze ANALYSIS RUN [flags]\n")
        print_pairs({name: meaning for name, (_, meaning) in analyses.items()}, indent="  ")
        return 0
    if args[0] not in analyses:
        raise ConfigError(f"unknown analysis {args[0]!r}; use {' or '.join(analyses)}")
    return analyses[args[0]][0](args[1:])


def probe(args: list[str]) -> int:
    options = parse(flags.Probe, args, "analyze probe")
    config = saved_config(options.run)
    if options.noise is not None:
        config = dataclasses.replace(config, noise=options.noise)
    require_checkpoint(options.run, config)
    require_writable(options.run)
    if find_spec("matplotlib") is None:
        raise ConfigError("matplotlib is not installed; run `pip install ssedb[report]`")
    from ssedb.analysis.probe import probe_run
    from ssedb.runs.summary import print_probe

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
    options = parse(flags.Spikes, args, "analyze spikes")
    _check_episode(options.run, options.steps, options.seed)
    from ssedb.analysis.spikes import spikes_of_run
    from ssedb.runs.progress import console
    from ssedb.runs.summary import print_spikes

    found = spikes_of_run(
        options.run,
        seed=options.seed,
        max_steps=options.steps,
        device=options.device,
        progress=console(),
    )
    print_spikes(found)
    return 0


def tsne(args: list[str]) -> int:
    options = parse(flags.Tsne, args, "analyze tsne")
    _check_episode(options.run, options.steps, options.seed)
    if options.compare is not None:
        _check_episode(options.compare, options.steps, options.seed)
    from ssedb.analysis.tsne import tsne_of_run
    from ssedb.runs.progress import console
    from ssedb.runs.summary import print_maps

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
    require_checkpoint(run, dataclasses.replace(saved_config(run), seed=seed))
    require_writable(run)
    if steps < 1:
        raise ConfigError(f"steps={steps}: must be 1 or more")
    _need_report_extra()


def _need_report_extra() -> None:
    missing = [name for name in ("matplotlib", "sklearn", "av") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{missing[0]} is not installed; run `pip install ssedb[report]`")


def report(args: list[str]) -> int:
    options = parse(flags.Report, args, "report")
    if not options.runs:
        raise ConfigError("no folder of runs is named; use `ssedb report runs/`")
    if options.episodes < 0:
        raise ConfigError(f"episodes={options.episodes}: must be 0 or more")
    for folder in options.runs:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}; name one that holds runs")
    _need_report_extra()
    from ssedb.report.make import make_report
    from ssedb.runs.progress import console

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
    options = parse(flags.Demo, args, "demo")
    config = TrainConfig(
        env=options.env,
        noise=options.noise,
        steps=options.steps,
        preset="rooms",
        fidelity="ours",
        reward_scale="run",
        out=options.out,
    )
    if rooms_world(config.env) is None:
        raise ConfigError(
            f"env={config.env}: the demo needs a world whose true state is known; use rooms-small, rooms or rooms-large"
        )
    if not 1 <= options.seeds <= 1000:
        raise ConfigError(f"seeds={options.seeds}: must lie between 1 and 1000")
    from ssedb.demo import run_demo

    run_demo(config, options.seeds)
    return 0


def sweep(args: list[str]) -> int:
    options = parse(flags.Sweep, args, "sweep")
    from ssedb.compare.results import PLAN
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
        raise ConfigError(
            "the grid asks for the probe and matplotlib is not installed; run `pip install ssedb[report]`"
        )
    root = grid.runs[0].folder.parent
    refuse_strangers(root, own=PLAN)
    if options.dry_run:
        from ssedb.sweep.estimate import print_estimate

        print_estimate(grid, root, options.jobs)
        return 0
    if options.ray is None:
        _check_devices({(run.config.device, run.config.engine) for run in grid.runs})
    from ssedb.sweep.run import run_sweep

    with locked(root):  # two would wait for each other's runs
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
            from ssedb.engine import check_engine
            from ssedb.engine.host import pick_device

            check_engine(kind, pick_device(device))


def stats(args: list[str]) -> int:
    options = parse(flags.Stats, args, "stats")
    if not options.runs:
        raise ConfigError("no folder is named; use `ssedb stats runs/quick`")
    from ssedb.compare.tables import write_stats

    require_writable(options.out or options.runs[0])
    write_stats(
        options.runs, options.out or options.runs[0] / "stats", options.measures, options.figures
    )
    return 0


def check(args: list[str]) -> int:
    options = parse(flags.Check, args, "check")
    kind = "noise" if is_noise(options.name) else "bonus"
    config = TrainConfig(env="rooms-small", device=options.device, **{kind: options.name})  # type: ignore[arg-type]
    from ssedb.runs.summary import print_checks

    return 0 if print_checks(getattr(config, kind), config.device) else 1


def theory(args: list[str]) -> int:
    options = parse(flags.Theory, args, "theory")
    if options.seed < 0:
        raise ConfigError(f"seed={options.seed}: must be 0 or more")
    if not options.parts:
        raise ConfigError("parts is empty; name at least one, or leave the flag out")
    if find_spec("matplotlib") is None:
        raise ConfigError("matplotlib is not installed; run `pip install ssedb[report]`")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write to {options.out}: {error.strerror}; choose another --out"
        ) from None
    from ssedb.theory.report import run_theory

    run_theory(
        list(dict.fromkeys(options.parts)), options.out, quick=options.quick, seed=options.seed
    )
    return 0


def show_list(args: list[str]) -> int:
    what = parse(flags.List, args, "list").what
    if what == "envs":
        rest = [game for game in atari_games() if game not in GAMES]
        print(f"the suite ({len(GAMES)}):\n{wrapped(' '.join(GAMES), '  ', '  ')}")
        print(f"every other Atari game ({len(rest)}):\n{wrapped(' '.join(rest), '  ', '  ')}")
        print(
            "a world whose true state is known:\n  rooms rooms-small rooms-large (another layout: rooms@7)"
        )
        print(
            wrapped(
                "and any Gymnasium id with image observations and discrete actions; module:Id imports its module"
            )
        )
    elif what == "noises":
        print_pairs(about_noises())
    else:
        from ssedb.runs.summary import print_bonuses

        print_bonuses(bonus_names())
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "train": (train, "train an agent, or go on with --resume"),
    "eval": (evaluate, "play episodes with a trained agent"),
    "demo": (demo, "see in minutes why noise fools curiosity and not DB"),
    "sweep": (sweep, "train a whole grid of runs; again, only what is missing"),
    "stats": (stats, "tables and figures of many runs"),
    "analyze": (analyze, "see what a bonus has learned: probe, spikes, tsne"),
    "check": (check, "check a bonus or a noise, ours or yours, against its contract"),
    "theory": (theory, "check the paper's theory in numbers"),
    "report": (report, "make a page of runs to look at in a browser"),
    "bench": (bench, "measure the speed of training here"),
    "list": (show_list, "show the envs, noises or bonuses there are"),
}


def main(argv: Sequence[str] | None = None) -> int:
    # Torch's threads would otherwise spin between operations on the cores that the emulators need.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if (
        os.getcwd() not in sys.path
    ):  # `--bonus my.module:Class` finds a module of the project it is run in
        sys.path.append(os.getcwd())
    if argv is None:
        _speak_utf8()
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return dispatch(args)
    except ConfigError as error:
        print(f"ssedb: {error}", file=sys.stderr)
        return 2
    except PermissionError as error:
        print(
            f"ssedb: {error.filename or error}: no permission; choose a path that you may use",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (TrainingError, OSError) as error:
        if distributed.rank() == 0 or isinstance(
            error, OSError
        ):  # what stops the training stops all processes
            print(f"ssedb: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("; ".join(["ssedb: stopped", *map(str, stop.args)]), file=sys.stderr)
        return 130


def _show_warning(
    message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any, **more: Any
) -> None:
    """Print a note as one line, any other warning as Python does."""
    text = (
        f"ssedb: {message}\n"
        if category is Note
        else warnings.formatwarning(message, category, filename, lineno)
    )
    sys.stderr.write(text)


def _speak_utf8() -> None:
    """Begin again in UTF-8 where the locale knows ASCII only: paths would be no text, and a box could not be drawn."""
    if sys.getfilesystemencoding() == "ascii" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # for the processes of a sweep
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # another encoding may lack a letter; that must not end a run


def dispatch(args: list[str]) -> int:
    for word in args:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{word!r} is no {sys.getfilesystemencoding()} text; give the path another name"
            ) from None
    if not args or args[0] in ("-h", "--help"):
        print(
            "usage: ssedb COMMAND [flags]\n\nExploration with no reward that noise does not fool.\n"
        )
        print_pairs({name: meaning for name, (_, meaning) in COMMANDS.items()}, indent="  ")
        print("\n`ssedb COMMAND --help` explains every flag.")
        return 0
    if args[0] == "--version":
        print(__version__)
        return 0
    if args[0] not in COMMANDS:
        raise ConfigError(f"unknown command {args[0]!r}; use one of {', '.join(COMMANDS)}")
    if distributed.size() > 1 and args[0] != "train":
        raise ConfigError(
            f"`ssedb {args[0]}` runs in one process, not in {distributed.size()}; leave torchrun out"
        )
    return COMMANDS[args[0]][0](args[1:])


if __name__ == "__main__":
    sys.exit(main())
