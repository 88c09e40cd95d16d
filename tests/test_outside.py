"""Environments and bonuses of a user's package, from the command line: by name, fresh processes."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import ssedb
from ssedb import cli
from ssedb.compare.results import Run, conditions
from ssedb.errors import ConfigError
from ssedb.runs.metrics import read_metrics
from ssedb.sweep.grid import read_grid
from ssedb.validate import import_outside
from tests.helpers import wait_for
from tests.outside import forget_package, write_package
from tests.toy import TINY, change_settings

WALKER = ["--env", "strangeworlds:Walker-v0", *TINY]
GRID = """
[settings]
env = "strangeworlds:Walker-v0"
preset = "rooms"
steps = 64
num_envs = 4
rollout_steps = 16
minibatch_envs = 2
bonus_epochs = 1
obs_norm_steps = 32

[axes]
env_kwargs = [{speed = 1}, {speed = 2}]
"""


class Shell:
    """Starts `ssedb` in processes that know the package by PYTHONPATH alone."""

    def __init__(self, folder: Path) -> None:
        write_package(folder)
        self.folder = folder

    def path(self):
        return os.pathsep.join([str(self.folder), str(Path(ssedb.__file__).parent.parent)])

    def start(self, *args, **settings):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        env = {**os.environ, "PYTHONPATH": self.path(), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "ssedb", *map(str, args)]
        return subprocess.Popen(command, env=env, cwd=self.folder, **{**streams, **settings})

    def run(self, *args):
        process = self.start(*args)
        return process.communicate(timeout=120)[0], process.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("strangers")


@pytest.fixture
def shell(folder):
    yield Shell(folder)
    forget_package()


def test_commands_find_an_environment_by_its_module(shell, monkeypatch, capsys):
    out = shell.folder / "run"
    said, code = shell.run(
        "train", *WALKER, "--env-kwargs", "speed=2", "side=50", "--steps", "64", "--out", out
    )
    assert code == 0, said
    saved = tomllib.loads((out / "config.toml").read_text())
    assert (saved["env"], saved["env_kwargs"]) == (
        "strangeworlds:Walker-v0",
        {"speed": 2, "side": 50},
    )
    grid, swept = shell.folder / "grid.toml", shell.folder / "sweep"
    grid.write_text(GRID)
    # In this process, which takes seconds less: nothing here has imported the package.
    monkeypatch.setenv("PYTHONPATH", shell.path())  # for the sweep's worker
    monkeypatch.syspath_prepend(shell.folder)
    for command in (
        ["train", "--resume", out, "--steps", "128"],
        ["eval", out, "--episodes", "2"],
        ["sweep", grid, "--out", swept, "--jobs", "1"],
        ["analyze", "spikes", out],
        ["report", out, "--out", shell.folder / "report"],
    ):
        assert "strangeworlds" not in sys.modules
        assert cli.main([*map(str, command), "--device", "cpu"]) == 0
        forget_package()
    printed, said = capsys.readouterr()
    assert "resumed at step 64" in said
    assert "strangeworlds:Walker-v0, noise none, agent of step" in " ".join(printed.split())
    assert len(list(swept.glob("*-speed-[12]-*/summary.json"))) == 2
    assert (out / "spikes").is_dir()
    assert "episode 1 of 1: db on strangeworlds:Walker-v0 (speed=2, side=50), noise none" in said
    assert "no episode" not in said


def test_env_kwargs_make_another_run(shell, monkeypatch):
    monkeypatch.syspath_prepend(shell.folder)
    (shell.folder / "plan.toml").write_text(GRID)
    runs = read_grid(shell.folder / "plan.toml", shell.folder / "planned").runs
    assert len({run.id for run in runs}) == 2
    (only,) = read_grid(
        shell.folder / "plan.toml", shell.folder / "planned", {"env_kwargs": {"speed": 2}}
    ).runs
    assert only.id == next(run.id for run in runs if run.config.env_kwargs == {"speed": 2})
    found = [Run(run.folder, tomllib.loads(run.config.to_toml()), "finished") for run in runs]
    assert [env for env, _, _ in conditions(found)] == [
        "strangeworlds:Walker-v0 (speed=1)",
        "strangeworlds:Walker-v0 (speed=2)",
    ]


def test_resume_keeps_the_env_kwargs(shell, monkeypatch, capsys):
    monkeypatch.syspath_prepend(shell.folder)
    out = shell.folder / "kept"
    assert (
        cli.main(["train", *WALKER, "--env-kwargs", "speed=2", "--steps", "64", "--out", str(out)])
        == 0
    )
    assert cli.main(["train", "--resume", str(out), "--env-kwargs", "speed=3"]) == 2
    assert "is a run with env_kwargs={'speed': 2}, not {'speed': 3}" in capsys.readouterr().err
    assert cli.main(["train", "--resume", str(out), "--env-workers", "2", "--steps", "128"]) == 0
    assert [row["steps"] for row in read_metrics(out)] == [64, 128]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_train_in_an_environment_that_raises_names_it_in_one_line(
    shell, monkeypatch, tmp_path, capsys, workers
):
    monkeypatch.syspath_prepend(shell.folder)
    out, kwargs = tmp_path / "run", ["--env-kwargs", "fails_at=6", "--env-workers", workers]
    assert cli.main(["train", *WALKER, *kwargs, "--steps", "64", "--out", str(out)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    wanted = "Walker.step raised ZeroDivisionError: the stripe fell over, before training"
    wanted += f"; the traceback is in {out / 'error.log'}"
    assert said == f"ssedb: {wanted}; nothing is saved in {out}; the same command begins anew"
    log = (out / "error.log").read_text()
    assert "in step\n    raise ZeroDivisionError" in log
    assert (
        cli.main(["train", *WALKER, "--steps", "64", "--out", str(out)]) == 0
    )  # the folder holds no run yet
    assert not (out / "error.log").exists()


def test_train_in_an_environment_that_raises_names_the_step(shell, monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(shell.folder)
    settings = [
        "--env-kwargs",
        "fails_at=40",
        "lasts=1000",
        "--rollout-steps",
        "16",
        "--obs-norm-steps",
        "16",
    ]
    assert (
        cli.main(["train", *WALKER, *settings, "--steps", "320", "--out", str(tmp_path / "run")])
        == 1
    )
    # It fails in the 40th step of each of 4 environments, so 39 were made everywhere.
    assert (
        "Walker.step raised ZeroDivisionError: the stripe fell over, at step 156;"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("bonus", "message"),
    [
        (
            "Column",
            "Column.reward gave shape [201, 1] of torch.float32, "
            "not a float32 tensor of shape [201], at step 0;",
        ),
        ("Forgetful", "Forgetful.observe raised ValueError: nothing learned, at step 64;"),
    ],
    ids=["shape", "raises"],
)
def test_train_with_a_bonus_that_fails_names_it_in_one_line(
    shell, monkeypatch, tmp_path, capsys, bonus, message
):
    monkeypatch.syspath_prepend(shell.folder)
    out = tmp_path / "run"
    args = [
        "train",
        "--env",
        "rooms-small",
        "--bonus",
        f"strangebonus:{bonus}",
        *TINY,
        "--steps",
        "64",
        "--out",
        str(out),
    ]
    assert cli.main(args) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        f"ssedb: {message} the traceback is in {out / 'error.log'}; "
        "saved at step 0; mend the cause, then go on with: "
    )
    assert "ssedb/runs/loop.py" in (out / "error.log").read_text()


def test_eval_in_an_environment_that_raises_names_it(shell, monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(shell.folder)
    out = tmp_path / "run"
    assert (
        cli.main(
            ["train", *WALKER, "--env-kwargs", "fails_at=0", "--steps", "64", "--out", str(out)]
        )
        == 0
    )
    change_settings(out, env_kwargs={"fails_at": 3})
    assert cli.main(["eval", str(out), "--episodes", "1", "--device", "cpu"]) == 1
    assert (
        "Walker.step raised ZeroDivisionError: the stripe fell over, under the agent of step 64;"
        in capsys.readouterr().err
    )
    (out / "error.log").unlink()
    (out / "error.log").mkdir()  # so that it cannot be written
    assert cli.main(["eval", str(out), "--episodes", "1", "--device", "cpu"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "ssedb: Walker.step raised ZeroDivisionError: the stripe fell over, "
        "under the agent of step 64"
    )


def tensors(state):
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, (dict, list, tuple)):
        for value in state.values() if isinstance(state, dict) else state:
            yield from tensors(value)


@pytest.mark.filterwarnings(
    "ignore:for .*:UserWarning"
)  # weights that a meta device is given are dropped
def test_agent_when_loaded_has_its_networks_alone_on_the_device(tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert (
        cli.main(["train", "--env", "rooms-small", *TINY, "--steps", "64", "--out", str(run)]) == 0
    )
    # As a GPU, on any machine.
    monkeypatch.setattr("ssedb.runs.agent.pick_device", lambda device: torch.device("meta"))
    agent = ssedb.load(run)
    assert {weight.device.type for weight in agent.policy.parameters()} == {"meta"}
    assert {weight.device.type for weight in agent.make_bonus().parameters()} == {"meta"}
    places = {
        name: {tensor.device.type for tensor in tensors(state)}
        for name, state in agent.state.items()
    }
    assert places.pop("env") == {"meta"}  # the visit counts, for the probe
    assert set().union(*places.values()) == {"cpu"}


def test_ctrl_c_reaches_the_learner_and_not_its_workers(shell):
    out = shell.folder / "stopped"
    flags = ["--env-workers", "2", "--steps", "1000000", "--out", out]
    process = shell.start("train", *WALKER, *flags, start_new_session=True)
    wait_for(
        lambda: (
            process.poll() is not None or ((out / "metrics.jsonl").exists() and read_metrics(out))
        )
    )
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    assert "stopping after this update, with a checkpoint" in said
    assert "Traceback" not in said
    assert list((out / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("env", "noise", "noted"),
    [
        ("ALE/Breakout-v5", "none", True),
        ("Breakout-v0", "none", True),
        ("ALE/Breakout-v5", "sticky", False),
        ("BreakoutNoFrameskip-v4", "none", False),
        ("breakout", "none", False),
    ],
)
def test_sticky_actions_that_an_id_loses_are_noted(env, noise, noted, capsys):
    args = [
        "train",
        "--env",
        env,
        "--noise",
        noise,
        "--num-envs",
        "100",
    ]  # refused before anything starts
    assert cli.main(args) == 2
    said = capsys.readouterr().err.splitlines()
    note = (
        f"ssedb: {env} has sticky actions of its own, which ssedb leaves out, as the paper does "
        "for breakout; use --noise sticky for sticky actions"
    )
    assert said[:-1] == ([note] if noted else [])


@pytest.mark.parametrize("setting", ["bonus", "noise"])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("strange_bonus.Column", "write strange_bonus:Column"),
        ("strange_bonus", "write strange_bonus:Class"),
        ("./strange_bonus.py", "write strange_bonus:Class, and set PYTHONPATH to its folder"),
    ],
)
def test_name_of_a_class_in_another_form_gets_a_hint(tmp_path, monkeypatch, setting, name, hint):
    (tmp_path / "strange_bonus.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ssedb.ConfigError) as refused:
        ssedb.TrainConfig(**{setting: name})
    assert str(refused.value) == f"{setting}={name!r}: {hint}"


def test_note_about_an_import_shows_the_line_of_the_caller(tmp_path, monkeypatch):
    write_package(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_package()
    with pytest.warns(ssedb.errors.Note, match="importing strangebonus from") as noted:
        ssedb.TrainConfig(bonus="strangebonus:Column")
    assert [note.filename for note in noted] == [__file__]
    forget_package()


@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize("name", ["nested_bonus", "nested_bonus.inner", "nested_bonus.inner.deep"])
def test_note_about_an_import_names_the_file_of_the_module(tmp_path, monkeypatch, init, name):
    """With and without `__init__.py` in its packages."""
    folder = tmp_path / "nested_bonus" / "inner"
    folder.mkdir(parents=True)
    (folder / "deep.py").touch()
    files = {
        "nested_bonus": tmp_path / "nested_bonus",
        "nested_bonus.inner": folder,
        "nested_bonus.inner.deep": folder / "deep.py",
    }
    if init:
        for package in list(files)[:2]:
            (files[package] / "__init__.py").touch()
            files[package] /= "__init__.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    text = f"importing {name} from {files[name]}, which env='x' names"
    try:
        with pytest.warns(ssedb.errors.Note, match=re.escape(text)):
            import_outside("env='x'", name)
    finally:
        for module in files:
            sys.modules.pop(module, None)


def test_module_with_a_fault_names_it_and_says_what_to_correct(tmp_path, monkeypatch):
    (tmp_path / "faultybonus.py").write_text("import nosuchpackage\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ssedb.ConfigError, match=r"nosuchpackage.*; correct .*, or install what it imports$"
    ):
        ssedb.TrainConfig(bonus="faultybonus:Bonus")


LACKING = """
from ssedb.bonuses.base import Bonus
from ssedb.bonuses.none import NoBonus

class NoLoss(Bonus):
    def reward(self, obs, actions, next_obs):
        return obs

class NoArguments(NoBonus):
    def __init__(self):
        pass

class Faulty(NoBonus):
    def __init__(self, obs_shape, num_actions, options):
        len(5)
"""


def test_make_bonus_of_a_class_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    (tmp_path / "lackingbonus.py").write_text(LACKING)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="'lackingbonus:NoLoss' has no loss; docs/new-bonus"):
        ssedb.make_bonus("lackingbonus:NoLoss", (4, 84, 84), 4)
    with pytest.raises(ConfigError, match=r"cannot be made .* must take obs_shape, num_actions"):
        ssedb.make_bonus("lackingbonus:NoArguments", (4, 84, 84), 4)
    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        ssedb.make_bonus("lackingbonus:Faulty", (4, 84, 84), 4)
