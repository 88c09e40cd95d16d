"""`ssedb train`: its summary and what it resumes."""

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from ssedb import cli
from ssedb.cli.train import parse_train, print_run
from ssedb.errors import ConfigError
from ssedb.runs.alarms import Alarm
from ssedb.runs.loop import TrainResult
from ssedb.runs.metrics import read_metrics
from tests.helpers import run_ssedb
from tests.toy import TINY, tiny_config


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
    assert result.stderr.startswith(
        f"db on rooms-tiny under random-box, preset small, 128 steps, into {out}\n"
    )
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
    opening, error = said.splitlines()
    assert opening.startswith("db on Blackjack-v1 without noise, ")
    assert "needs uint8 images" in error
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


@pytest.mark.parametrize("flag", ["--alpha1", "--alpha1=0.1", "--no-momentum-target"])
def test_options_of_another_bonus_are_told_from_mistakes(flag):
    name = flag.partition("=")[0]
    message = (
        f"{name} is an option of db and db-ensemble, not of rnd; "
        "see `ssedb train --bonus rnd --help`"
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_train(["--bonus", "rnd", flag])


def test_flags_reach_the_configuration():
    flags = ["--env", "MsPacman", "--noise", "pixel", "--fidelity", "released", "--alpha3", "0.5"]
    flags += ["--policy-layers", "relu", "relu", "relu", "--reward-scale", "none"]
    flags += ["--steps", "2.5e6"]
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


def test_summary_shows_the_rank_of_z_and_names_that_of_the_encoded_states(capsys):
    last = {"sps": 100.0, "rank_z": 7.9, "rank_state": 204.0}
    summary = {"last": last, "score": None, "score_best": None, "episodes": 0}
    print_run(TrainResult(Path("run"), 256, True, summary), tiny_config("run"))
    rows = [
        line.strip(" │|").split("│")
        for line in capsys.readouterr().out.splitlines()
        if "rank" in line
    ]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["effective rank of z", "7.900"],
        ["effective rank of the encoded states", "204.000"],
    ]


def test_summary_run_on_rooms_shows_how_much_was_seen(capsys):
    last = {"sps": 100.0, "states_share": 0.25, "rooms_share": 0.5}
    summary = {"last": last, "score": None, "score_best": None, "episodes": 0}
    print_run(TrainResult(Path("run"), 256, True, summary), tiny_config("run"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "seen" in line]
    assert [line.split()[-2] for line in lines] == ["0.250", "0.500"]


def test_summary_shows_a_small_bonus_to_three_digits(capsys):
    last = {"sps": 100.0, "bonus_raw": 0.000123456}
    summary = {"last": last, "score": None, "score_best": None, "episodes": 0}
    print_run(TrainResult(Path("run"), 256, True, summary), tiny_config("run"))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "bonus, before" in line)
    assert line.split()[-2] == "0.000123"


def test_summary_run_with_an_alarm_tells_it_with_the_remedy(capsys):
    alarm = Alarm("entropy", since=1000, until=9000, stands=True, value=0.01)
    summary = {"last": {}, "score": None, "score_best": None, "episodes": 0}
    summary["alarms"] = [asdict(alarm)]
    print_run(TrainResult(Path("run"), 9000, True, summary), tiny_config("run"))
    assert "ALARM: entropy of the policy 0.01: it has been under 0.08 for 8,000 steps" in (
        capsys.readouterr().out
    )
