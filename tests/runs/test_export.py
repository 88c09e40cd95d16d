"""`ssedb export`: the weights in a format that other programs read."""

import json

import pytest
import torch
from safetensors import safe_open

import ssedb
from ssedb import cli
from ssedb.runs.export import export
from ssedb.runs.loop import train
from tests.toy import tiny_config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "run"
    train(tiny_config(out, env="rooms-small", steps=256, obs_norm_steps=64))
    return out


def test_export_writes_every_weight_of_the_newest_agent(run, tmp_path, capsys):
    assert cli.main(["export", str(run), "--out", str(tmp_path / "new" / "w.safetensors")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'new' / 'w.safetensors'}: ")
    agent = ssedb.load(run)
    expected = {f"policy.{k}": v for k, v in agent.state["policy"].items()}
    expected |= {f"bonus.{k}": v for k, v in agent.state["bonus"].items()}
    with safe_open(tmp_path / "new" / "w.safetensors", "pt") as file:
        assert set(file.keys()) == set(expected)
        assert all(torch.equal(file.get_tensor(name), expected[name]) for name in expected)
        about = file.metadata()
    assert about["steps"] == "256"
    assert about["leaky_relu_slope"] == "0.2"
    assert json.loads(about["settings"])["env"] == "rooms-small"
    assert export(run) == run / "weights.safetensors"


def test_export_mistakes_are_one_line(run, tmp_path, capsys, monkeypatch):
    assert cli.main(["export", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err
    (tmp_path / "notes.tex").write_text("mine")
    for file in (tmp_path / "notes.tex", run / "config.toml"):
        before = file.read_text()
        assert cli.main(["export", str(run), "--out", str(file)]) == 2
        assert "is there already and no .safetensors file; choose" in capsys.readouterr().err
        assert file.read_text() == before
    monkeypatch.setattr("ssedb.errors.find_spec", lambda name: None)
    assert cli.main(["export", str(run)]) == 2
    said = "ssedb: safetensors is not installed; run `pip install 'ssedb[export]'`\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("bonus", "stored"),
    [
        ("db-ensemble", {"memory.frames", "memory.actions", "memory.seen"}),
        ("db-count", {"past_obs", "past_actions"}),
    ],
)
def test_export_leaves_the_stored_transitions_out(tmp_path, bonus, stored):
    config = tiny_config(
        tmp_path / "run",
        env="rooms-small",
        bonus=bonus,
        steps=256,
        obs_norm_steps=64,
        bonus_options={"memory": 50},
    )
    train(config)
    state = ssedb.load(tmp_path / "run").state["bonus"]
    with safe_open(export(tmp_path / "run"), "pt") as file:
        left_out = {f"bonus.{name}" for name in state} - set(file.keys())
    assert left_out == {f"bonus.{name}" for name in stored}
