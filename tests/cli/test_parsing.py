"""Flags of all commands: mistakes get one line, fast; help has a sentence for every flag."""

import json
import os
import re
import resource
import subprocess
import sys

import pytest

from ssedb import cli
from tests.helpers import run_ssedb

MISTAKES = [
    (["train"], "name at least what to train on, such as `ssedb train --env alien`; `ssedb train"),
    (["train", "--env", "alein"], "unknown environment 'alein'; did you mean alien"),
    (["train", "--noise", "fog"], "noise='fog': use one of none, clouds"),
    (["train", "--noise", "randombox"], "noise='randombox': did you mean random-box? use one of"),
    (["train", "--bonus", "dis"], "bonus='dis': use one of"),
    (["train", "--bonus", "disagrement"], "bonus='disagrement': did you mean disagreement? use"),
    (["ttrain"], "unknown command 'ttrain'; did you mean train? use one of"),
    (["train", "--bonus", "luck"], "bonus='luck': use one of cb, count, db"),
    (
        ["train", "--num-envs", "100"],
        "num_envs=100 does not split into minibatches of 16 envs; set num_envs to 96 or 112, or ",
    ),
    (["train", "--num-envs", "-3"], "num_envs=-3: must be above 0"),
    (["train", "--alpha1", "-1"], "alpha1=-1.0: must be 0 or more"),
    (["train", "--steps", "many"], "ssedb: --steps: 'many' is no whole number; `ssedb"),
    (["train", "--steps", "1e-6"], "ssedb: --steps: '1e-6' is no whole number"),
    (
        ["train", "--nosie", "pixel"],
        "there is no flag --nosie; did you mean --noise? `ssedb train --help`",
    ),
    (["train", "--bonus-root", "cube"], "'cube'"),
    (["train", "--preset"], "--preset needs a value; `ssedb train --help` explains the flags"),
    (["train", "--policy-channels", "1", "2"], "--policy-channels needs 3 values; `ssedb train"),
    (["train", "--seed", "1", "2"], "no flag takes: 2; `ssedb train --help`"),
    (
        ["train", "--policy-channels", "-1", "8", "8"],
        "policy_channels=(-1, 8, 8): must be above 0",
    ),
    (["train", "--learning-rate", "inf"], "learning_rate=inf: must be a finite number"),
    (["train", "--device", "tpu"], "device='tpu': use auto, cpu, cuda or cuda:N"),
    (["demo", "--env", "alien"], "env=alien: the demo needs a world whose true state is known"),
    (["demo", "--seeds", "0"], "seeds=0: must lie between 1 and 1000"),
    (["analyze", "fly"], "unknown analysis 'fly'; use probe or spikes or tsne"),
    (
        ["train", "--out", "/dev/null/run"],
        "cannot write to /dev/null/run: Not a directory; choose a path",
    ),
    (["train", "--resume", "/nonexistent"], "there is no folder /nonexistent; name the folder of"),
    (["train", "--resume", "/"], "/ holds no run (no config.toml); name the folder of a run"),
    (["eval", "/nonexistent"], "there is no folder /nonexistent; name the folder of a run"),
    (["check", "icmm"], "bonus='icmm': did you mean icm? use one of cb, count, db"),
    (["list", "toys"], "what='toys': use one of 'envs', 'noises', 'bonuses'; `ssedb list --help`"),
    (["list"], "missing: What to list; `ssedb list --help` explains the flags"),
    (["analyze"], "missing: the analysis (probe or spikes or tsne) and the folder of a run; "),
    (["check"], "missing: A bonus or noise of `ssedb list`, or a class of your own as "),
    (["bench", "--updates", "0"], "updates=0: must be 1 or more"),
    (["fly"], "unknown command 'fly'; use one of train, eval, demo"),
    (
        ["sweep", "nowhere.toml"],
        "cannot read nowhere.toml: No such file or directory; name a grid file",
    ),
    (["sweep", "x.toml", "--jobs", "0"], "jobs=0: must be 1 or more"),
    (["sweep", "x.toml", "--set", "steps"], "set='steps': write KEY=VALUE"),
    (["sweep", "x.toml", "--ray", "local", "--jobs", "2"], "jobs=2: Ray has its own scheduler"),
    (
        ["sweep", "x.toml", "--set", "a=1", "--set", "b=2"],
        "--set is given twice; write all",
    ),
    (
        ["train", "--env", "rooms-tiny", "--threads", "40000"],
        "threads=40000: must be at most 1,024",
    ),
    (["sweep", "x.toml", "--minutes", "nan"], "minutes=nan: must be a finite number"),
    (["sweep", "x.toml", "--cpus", "-1"], "cpus=-1.0: must be 0 or more"),
    (["sweep"], "missing: The grid file, such as experiments/smoke.toml (docs/sweeps.md explains"),
    (["stats", "/nonexistent"], "there is no folder /nonexistent; name one that holds runs"),
    (["stats"], "no folder is named"),
    (["theory", "--seed", "-1"], "seed=-1: must be 0 or more"),
    (["theory", "--parts", "luck"], "parts='luck': use one of 'theorem1', "),
    (
        ["theory", "--out", "/dev/null/x"],
        "cannot write to /dev/null/x: Not a directory; choose a path that you may use",
    ),
]
"""Wrong words, and what is said of them."""

ONE_BY_ONE = """
import contextlib, io, json, sys
from ssedb import cli

answers = []
for args in json.load(sys.stdin):
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            code = cli.main(args)
        except SystemExit as end:  # of --help
            code = end.code
    answers.append([code, said.getvalue(), printed.getvalue(), "torch" in sys.modules])
json.dump(answers, sys.stdout)
"""


def in_fresh_process(commands):
    """(exit code, stderr, stdout, is torch loaded by now) of each command, all in one process."""
    run = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def answers():
    return in_fresh_process([args for args, _ in MISTAKES])


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=lambda i: "_".join(MISTAKES[i][0]))
def test_cli_with_a_mistake_exits_2_in_one_line_before_torch_is_loaded(number, answers):
    code, said, printed, torch_is_loaded = answers[number]
    assert code == 2
    assert said.startswith("ssedb: ")
    assert MISTAKES[number][1] in said
    assert said.count("\n") == 1
    assert printed == ""
    assert not torch_is_loaded


def test_cli_with_a_mistake_answers_within_two_seconds():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run_ssedb("train", "--env", "alein")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("ssedb: unknown environment 'alein'")
    # Of the CPU: other work must not count.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            "train --entropy-coeff 0.1",
            "there is no flag --entropy-coeff; did you mean --entropy-coef?",
        ),
        (
            "train --noise_strenght=3",
            "there is no flag --noise_strenght; did you mean --noise-strength or --noise-variant?",
        ),
        (
            "train --no-mask-boundary",
            "there is no flag --no-mask-boundary; did you mean --no-mask-boundaries?",
        ),
        ("train --bonus rnd --featurs 3", "there is no flag --featurs; "),
        ("eval x --episode 3", "did you mean --episodes?"),
        ("bench --update 3", "did you mean --updates?"),
        ("demo --sead 3", "did you mean --seeds?"),
        ("sweep x --dryrun", "did you mean --dry-run?"),
        ("stats x --no-figure", "did you mean --no-figures?"),
        ("report x --singlefile", "did you mean --single-file?"),
        ("check db --devise cpu", "did you mean --device?"),
        ("theory --part regret", "did you mean --parts?"),
        ("analyze probe x --draw 4", "did you mean --draws?"),
        ("analyze spikes x --sed 4", "did you mean --seed?"),
        ("analyze tsne x --compere y", "did you mean --compare?"),
        ("list envs --foo", "there is no flag --foo; `ssedb list --help` explains the flags"),
        ("train --steps 1e23", "--steps: '1e23' is too large; use at most 100,000,000,000"),
        ("train --obs-norm-steps 100000000001", "--obs-norm-steps: '100000000001' is too large"),
        (
            "train --num-envs 1e9 --minibatch-envs 1",
            "num_envs=1000000000: must be at most 100,000,000",
        ),
        ("train --rollout-steps 1e9", "rollout_steps=1000000000: must be at most 100,000,000"),
        (
            "train --max-episode-steps 1e9",
            "max_episode_steps=1000000000: must be at most 100,000,000",
        ),
        ("train --noop-max 1e9", "noop_max=1000000000: must be at most 100,000,000"),
        ("train --seed 1e10", "seed=10000000000: must be below 4294967296"),
        ("eval x --episodes 1e23", "--episodes: '1e23' is too large"),
        ("demo --seeds 1e9", "seeds=1000000000: must lie between 1 and 1000"),
    ],
    ids=lambda text: text.replace(" ", "_"),
)
def test_cli_with_misspelt_flags_or_infinite_numbers_answers_in_one_line(
    args, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(args.split()) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_has_a_sentence_for_every_flag_and_loads_no_torch():
    names = [*cli.COMMANDS, "analyze probe", "analyze spikes", "analyze tsne"]
    names.remove("analyze")
    commands = [["--help"], *([*name.split(), "--help"] for name in names)]
    top, *each = in_fresh_process(commands)
    assert (top[0], top[3]) == (0, False)
    assert all(f"  {name} " in top[2] for name in cli.COMMANDS)
    for name, (code, _, text, torch_is_loaded) in zip(names, each, strict=True):
        assert (code, torch_is_loaded) == (0, False), name
        words = re.sub(r"[╭╮╰╯│─]+", " ", text)
        helps = re.split(r"\s(--[a-z][\w-]*) ", words)[1:]
        assert len(helps) >= 2, name
        for flag, rest in zip(helps[::2], helps[1::2], strict=True):
            assert re.search(r"[A-Z]?[a-z]+ [a-z]+", rest), flag
