"""A run that ends before its first update: its messages are true, and the folder is usable."""

import os
import signal
import subprocess
import sys

import pytest

from ssedb import cli
from ssedb.errors import TrainingError
from ssedb.runs import checkpoint
from ssedb.runs.metrics import read_metrics
from ssedb.runs.signals import handled
from ssedb.trainer import Trainer
from tests.helpers import run_ssedb, wait_for
from tests.toy import ROOMS_FLAGS as FLAGS

TRAP = """
import os, signal
import torch
from ssedb.bonuses.none import NoBonus

class Trap(NoBonus):
    def loss(self, obs, actions, next_obs, mask=None):
        how = os.environ.get("TRAP")
        if how == "crash":
            raise IndexError("the trap")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(float("nan") if how == "nan" else 0.0), {}

    def diagnostics(self, obs, actions, next_obs):
        return {}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        (
            "nan",
            1,
            "bonus_loss is nan after update 1; saved at step 0; mend the cause, then "
            "go on with: PYTHONPATH={path} ssedb train --resume 'my run'\n",
        ),
        ("crash", 1, "the trap"),
        ("kill", -signal.SIGKILL, ""),
    ],
    ids=["nan", "crash", "kill"],
)
def test_train_whose_first_update_fails_can_be_resumed(
    project, capsys, monkeypatch, how, code, said
):
    command = ["train", "--bonus", "trap:Trap", *FLAGS, "--out", "my run"]
    monkeypatch.setenv("TRAP", how)
    path = f"{project}:{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", path)
    if how == "kill":
        assert run_ssedb(*command).returncode == code
    else:
        assert cli.main(command) == code
        assert said.format(path=path) in capsys.readouterr().err
    monkeypatch.delenv("TRAP")
    assert cli.main(command) == 2
    message = (
        "ssedb: my run already holds a run; "
        f"go on with `PYTHONPATH={path} ssedb train --resume 'my run'`, or choose another --out\n"
    )
    assert capsys.readouterr().err.endswith(message)
    assert cli.main(["train", "--resume", "my run"]) == 0
    assert "resumed at step 0" in capsys.readouterr().err
    assert [row["steps"] for row in read_metrics(project / "my run")] == [32, 64]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_train_stopped_while_measuring_observations_leaves_its_folder_free(project, capsys, number):
    command = ["train", *FLAGS, "--out", "run"]
    endless = [sys.executable, "-m", "ssedb", *command, "--obs-norm-steps", "1e9"]
    with handled(signal.SIG_DFL, signal.SIGHUP):  # nohup may run the tests
        process = subprocess.Popen(endless, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr.readline().startswith("db on rooms-small without noise, ")
        assert "a random agent looks around" in process.stderr.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    if number != signal.SIGKILL:
        assert (process.returncode, said) == (
            130,
            "ssedb: stopped; nothing is saved in run; the same command begins anew\n",
        )
        assert not (project / "run").exists()
    else:
        assert process.returncode == -number
    assert cli.main(["train", "--resume", "run"]) == 2
    why = "run holds no run" if number == signal.SIGKILL else "there is no folder run"
    assert why in capsys.readouterr().err
    assert cli.main(command) == 0


def test_train_stopped_twice_names_what_is_saved(project, capsys, monkeypatch):
    """The second Ctrl-C ends a run within an update."""

    def stopped_twice(trainer):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "iterate", stopped_twice)
    assert cli.main(["train", *FLAGS, "--out", "run"]) == 130
    assert (
        "ssedb: stopped; saved at step 0; go on with: ssedb train --resume run\n"
        in capsys.readouterr().err
    )


def test_train_that_fails_over_unreadable_checkpoints_names_its_own_error(
    project, capsys, monkeypatch
):
    def fails(trainer):
        for path in checkpoint.list_checkpoints(project / "run" / "checkpoints"):
            path.write_bytes(b"")
        raise TrainingError("the cause")

    monkeypatch.setattr(Trainer, "iterate", fails)
    assert cli.main(["train", *FLAGS, "--out", "run"]) == 1
    said = capsys.readouterr().err
    assert "ssedb: the cause; no checkpoint in run/checkpoints can be read: " in said
    assert said.endswith("start a new run\n")


def test_train_stopped_before_torch_is_loaded_leaves_its_folder_free(project, capsys, monkeypatch):
    class Stop:
        def find_spec(self, name, path, target=None):
            if name == "ssedb.runs.loop":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "ssedb.runs.loop", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Stop(), *sys.meta_path])
    assert cli.main(["train", *FLAGS, "--out", "run"]) == 130
    _, said = capsys.readouterr().err.splitlines()
    assert said == "ssedb: stopped; nothing is saved in run; the same command begins anew"
    assert not (project / "run").exists()


def test_train_on_sigterm_ends_with_a_checkpoint(project):
    command = [sys.executable, "-m", "ssedb", "train", *FLAGS, "--steps", "1e9", "--out", "run"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = project / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size)
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "stopping after this update, with a checkpoint" in said
    assert "stopped early; go on with: ssedb train --resume run\n" in out
    assert (
        checkpoint.about_latest(project / "run" / "checkpoints")["steps"]
        == read_metrics("run")[-1]["steps"]
    )


WHEN = {
    "first at exit": """dispatch = cli.dispatch
        def dispatched(args):
            atexit.register(os.kill, os.getpid(), number)
            return dispatch(args)
        cli.dispatch = dispatched""",
    "last at exit": "atexit.register(os.kill, os.getpid(), number)",
    "after that": """class Late:
            def __del__(self, kill=os.kill, process=os.getpid()):
                kill(process, number)
        late = Late()""",
}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_while_python_cleans_up_changes_no_exit_code(number, when):
    code = f"""if True:
        import atexit, os, signal, sys
        from ssedb import cli
        number = int(sys.argv.pop())
        {WHEN[when]}
        sys.argv[1:] = ["list", "no such list"]
        sys.exit(cli.main())
    """
    done = subprocess.run([sys.executable, "-c", code, str(int(number))], capture_output=True)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_train_stopped_while_it_says_so_ends_quietly(project, capsys, monkeypatch):
    def stopped(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "dispatch", stopped)
    monkeypatch.setattr(cli, "_say", stopped)
    assert cli.main(["train"]) == 130
