"""The command as a user runs it: exit codes, one-line errors, no traceback, nothing lost."""

import ctypes
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ssedb import cli
from ssedb.cli.train import parse_train
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.runs.metrics import read_metrics
from tests.helpers import run_ssedb
from tests.sweep.grids import write_grid
from tests.toy import TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    result = run_ssedb(
        "train",
        "--env",
        "Rooms-Tiny",
        "--noise",
        "random-box",
        "--steps",
        "128",
        "--out",
        str(out),
        *TINY,
    )
    assert result.returncode == 0, result.stderr
    return out, result


def test_train_prints_what_it_does_and_its_progress(trained):
    out, result = trained
    assert "a random agent looks around for 32 steps" in result.stderr
    assert "128/128 steps" in result.stderr
    assert "db on rooms-tiny, noise random-box" in result.stdout
    assert f"run folder   {out}" in result.stdout
    assert f"ssedb eval {out}" in result.stdout


def test_resume_and_eval_of_a_run_continue_and_score_it(trained, capsys):
    out, _ = trained

    def run(*args):
        return cli.main(args), capsys.readouterr()

    code, said = run("train", "--resume", str(out), "--steps", "192")
    assert (code, "resumed at step 128" in said.err) == (0, True)
    assert [r["steps"] for r in read_metrics(out)] == [64, 128, 192]
    for flags, message in (
        (["--steps", "100"], f"steps=100: {out} is at step 192 already; ask for more"),
        (
            ["--bonus", "rnd"],
            f"{out} is a run with bonus=db, not rnd; a resumed run keeps its settings",
        ),
    ):
        code, said = run("train", "--resume", str(out), *flags)
        assert (code, message in said.err) == (2, True)
    code, said = run("train", "--resume", str(out))
    assert (code, "nothing left to do at step 192" in said.err) == (0, True)
    code, said = run("eval", str(out), "--episodes", "1", "--device", "cpu")
    assert code == 0
    assert re.search(
        r"agent of step 192: score -?[\d.]+ .* over 1 episode of ", " ".join(said.out.split())
    )


MISTAKES = [
    (["train", "--env", "alein"], "unknown environment 'alein'; did you mean alien"),
    (["train", "--noise", "fog"], "noise='fog': use one of none, clouds"),
    (["train", "--bonus", "luck"], "bonus='luck': use one of cb, count, db"),
    (
        ["train", "--num-envs", "100"],
        "num_envs=100 does not split into minibatches of 16 envs; use 96 or 112",
    ),
    (["train", "--num-envs", "-3"], "num_envs=-3: must be above 0"),
    (["train", "--alpha1", "-1"], "alpha1=-1.0: must be 0 or more"),
    (["train", "--steps", "many"], "Error parsing --steps: 'many' is no whole number"),
    (["train", "--steps", "1e-6"], "Error parsing --steps: '1e-6' is no whole number"),
    (
        ["train", "--nosie", "pixel"],
        "there is no flag --nosie; did you mean --noise? `ssedb train --help`",
    ),
    (["train", "--bonus-root", "cube"], "'cube'"),
    (["train", "--preset"], "--preset"),
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
        "cannot write to /dev/null/run: Not a directory; choose a folder",
    ),
    (["train", "--resume", "/nonexistent"], "/nonexistent holds no run (no config.toml)"),
    (["eval", "/nonexistent"], "/nonexistent holds no run"),
    (["check", "icmm"], "bonus='icmm': use one of cb, count, db"),
    (["list", "toys"], "'toys'"),
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
    (["sweep", "x.toml", "--cpus", "-1"], "cpus=-1.0: must be 0 or more"),
    (["sweep"], "PATH"),
    (["stats", "/nonexistent"], "there is no folder /nonexistent; name one that holds runs"),
    (["stats"], "no folder is named"),
    (["theory", "--seed", "-1"], "seed=-1: must be 0 or more"),
    (["theory", "--parts", "luck"], "invalid choice 'luck'"),
    (
        ["theory", "--out", "/dev/null/x"],
        "cannot write to /dev/null/x: Not a directory; choose a folder you may write to",
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
            "there is no flag --noise_strenght; did you mean --noise-strength?",
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


def test_settings_from_a_file_have_the_limits_of_flags(tmp_path):
    with pytest.raises(ConfigError, match="steps=100000000001: must be at most 100,000,000,000"):
        TrainConfig(steps=10**11 + 1)
    assert TrainConfig(steps=1e11).steps == 10**11


def test_folder_without_permission_is_named_in_one_line(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "open").mkdir()
    closed.chmod(0)
    for args in (
        ["train", "--out", "closed/run"],
        ["train", "--resume", "closed/run"],
        ["eval", "closed/run"],
        ["stats", "closed/run"],
        ["report", "open", "--out", "closed/report", "--episodes", "0"],
    ):
        result = run_ssedb(*args, cwd=tmp_path, preexec_fn=obey_permissions)
        assert result.returncode == 2
        assert re.fullmatch(
            r"ssedb: closed/\S+: no permission; choose a path that you may use\n", result.stderr
        )
    closed.chmod(0o700)


def obey_permissions() -> None:
    """Give up what lets root read and write everything."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert libc.prctl(24, capability, 0, 0, 0) == 0, os.strerror(
                ctypes.get_errno()
            )  # PR_CAPBSET_DROP


def test_train_into_a_finished_run_or_with_other_settings_is_refused(trained, capsys):
    out, _ = trained
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".lock"}
    for args, message in (
        (["--out", str(out)], "already holds a run"),
        (["--resume", str(out), "--out", "elsewhere"], "not elsewhere"),
        (["--resume", str(out), "--env", "alien"], "is a run with env=rooms-tiny, not alien"),
    ):
        assert cli.main(["train", *args]) == 2
        assert message in capsys.readouterr().err
    assert {
        p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".lock"
    } == before


def test_command_that_cannot_begin_leaves_its_folder_unclaimed(tmp_path, capsys):
    out = ["--out", str(tmp_path / "run"), *TINY]
    assert cli.main(["train", "--env", "Blackjack-v1", *out]) == 2
    said = capsys.readouterr().err
    assert "needs uint8 images" in said
    assert said.count("\n") == 1
    assert cli.main(["train", "--env", "rooms-small", "--steps", "64", *out]) == 0


def test_resume_with_a_checkpoint_of_another_game_is_refused(trained, tmp_path, capsys):
    out, _ = trained
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    config = copy / "config.toml"
    config.write_text(config.read_text().replace('"rooms-tiny"', '"alien"'))
    for command in (["train", "--resume", str(copy)], ["eval", str(copy)]):
        assert cli.main(command) == 2
        said = capsys.readouterr().err
        assert "is of rooms-tiny but its config.toml says alien" in said


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


def test_list_shows_bonuses_noises_and_environments(capsys, monkeypatch):
    def said(*args):
        assert cli.main(args) == 0
        return capsys.readouterr().out

    monkeypatch.setenv("COLUMNS", "100")
    envs = said("list", "envs")
    assert "alien" in envs
    assert "montezuma_revenge" in envs
    assert "random-box" in said("list", "noises")
    bonuses = said("list", "bonuses")
    assert re.search(r" db +5,129,537 +3,280,417 +5\.15M ", bonuses)
    assert re.search(r" icm +4,858,020 +4,858,020 +4\.86M ", bonuses)
    assert re.search(r" disagreement +28,154,528 +26,470,400 +26\.47M ", bonuses)
    assert re.search(r" rnd +3,881,280 +2,203,296 +- ", bonuses)
    assert max(map(len, bonuses.splitlines())) <= 100
    assert said("--version").strip() == "0.1.0"
    assert "ssedb COMMAND --help" in said()


def test_cli_beside_a_folder_named_like_the_package_works(tmp_path):
    (tmp_path / "ssedb").mkdir()  # a clone, seen from beside it
    subprocess.run(
        [sys.executable, "-c", "import ssedb; ssedb.make_bonus"], cwd=tmp_path, check=True
    )


@pytest.mark.parametrize("flag", ["--alpha1", "--alpha1=0.1", "--no-momentum-target"])
def test_options_of_another_bonus_are_told_from_mistakes(flag):
    name = flag.partition("=")[0]
    message = f"{name} is an option of db, not of rnd; see `ssedb train --bonus rnd --help`"
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_train(["--bonus", "rnd", flag])


def test_flags_reach_the_configuration():
    flags = ["--env", "MsPacman", "--noise", "pixel", "--fidelity", "released", "--alpha3", "0.5"]
    flags += [
        "--policy-layers",
        "relu",
        "relu",
        "relu",
        "--reward-scale",
        "none",
        "--steps",
        "2.5e6",
    ]
    config, resume = parse_train(flags)
    assert resume is None
    assert (config.env, config.noise, config.bonus_epochs, config.reward_scale) == (
        "ms_pacman",
        "pixel",
        3,
        "none",
    )
    assert config.policy_layers == ("relu", "relu", "relu")
    assert (config.steps, type(config.steps)) == (2_500_000, int)
    assert (config.bonus_options["alpha1"], config.bonus_options["alpha3"]) == (0.001, 0.5)


def test_train_into_a_folder_of_other_files_is_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert cli.main(["train", "--out", str(tmp_path), *TINY]) == 2
    assert "holds other files (notes.txt); choose a new" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_sweep_into_a_folder_of_other_files_is_refused(tmp_path, capsys):
    grid, out = write_grid(tmp_path), tmp_path / "home"
    (out / "letters").mkdir(parents=True)
    for flags in ([], ["--dry-run"]):
        assert cli.main(["sweep", str(grid), "--out", str(out), *flags]) == 2
        said = capsys.readouterr().err
        assert said == (
            f"ssedb: {out} holds other files (letters); choose a new or an empty folder for --out\n"
        )
    assert [path.name for path in out.iterdir()] == ["letters"]


def test_sweep_without_its_cluster_leaves_nothing(tmp_path, capsys, monkeypatch):
    def init(**settings):
        raise ConnectionError("nobody answers")

    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init, __spec__=True)
    )
    out = tmp_path / "runs"
    assert cli.main(["sweep", str(write_grid(tmp_path)), "--out", str(out), "--ray", "foo"]) == 2
    assert (
        "no Ray at 'foo': nobody answers; start one with `ray start --head`"
        in capsys.readouterr().err
    )
    assert not out.exists()


def test_commands_on_empty_checkpoints_give_the_same_message(trained, tmp_path, capsys):
    out, _ = trained
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    files = sorted((copy / "checkpoints").iterdir())
    files[-1].write_bytes(b"")
    assert cli.main(["eval", str(copy), "--episodes", "1"]) == 0  # the one before it
    assert (
        f"{files[-1].name} is damaged (not a checkpoint of ssedb); using the one before it"
        in capsys.readouterr().err
    )
    for file in files:
        file.write_bytes(b"")
    for command in (
        ["eval", str(copy)],
        ["train", "--resume", str(copy)],
        ["analyze", "probe", str(copy)],
    ):
        assert cli.main(command) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"ssedb: no checkpoint in {copy / 'checkpoints'} can be read: ")
        assert said.endswith("start a new run\n")
