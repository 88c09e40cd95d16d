"""Snapshots of a run on Rooms: right, few, harmless to the run, and readable after a crash."""

import dataclasses
import json
import math

import pytest
import torch

import ssedb
from ssedb.envs.rooms.world import World
from ssedb.runs import maps
from ssedb.runs.loop import resume
from ssedb.runs.maps import mean_by_cell
from ssedb.runs.metrics import read_log
from ssedb.trainer import Trainer
from ssedb.transitions import Transitions
from tests.toy import tiny_config


def rooms(out, **changes):
    settings = dict(
        env="rooms-small",
        noise="random-box",
        steps=256,
        obs_norm_steps=16,
        num_envs=8,
        rollout_steps=8,
    )
    return tiny_config(out, **{**settings, **changes})


def read_maps(run):
    return read_log(run / "maps.jsonl").rows


def test_maps_of_a_run_are_written_beside_its_metrics(tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "SNAPSHOTS", 2)
    ssedb.train(rooms(tmp_path / "run"))
    found = read_maps(tmp_path / "run")
    assert [row["steps"] for row in found] == [0, 128, 256]
    cells = len(World("small").cells)
    for row in found:
        assert len(row["visits"]) == len(row["bonus"]) == cells
    # Every step arrives in a cell, and every episode begins in one: the first 8 and all later ones.
    episodes = json.loads((tmp_path / "run" / "summary.json").read_text())["episodes"]
    assert sum(found[-1]["visits"]) == 256 + 8 + episodes
    assert found[0]["bonus"] != found[-1]["bonus"]


def test_maps_of_a_resumed_run_continue(tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "SNAPSHOTS", 4)
    ssedb.train(rooms(tmp_path / "run", steps=128))
    with open(
        tmp_path / "run" / "maps.jsonl", "a"
    ) as file:  # taken after the last checkpoint, then killed in a line
        file.write('{"steps": 192, "visits": [9], "bonus": null}\n{"steps": 230, "vis')
    resume(tmp_path / "run", steps=256)
    assert [row["steps"] for row in read_maps(tmp_path / "run")] == [0, 64, 128, 192, 256]
    assert read_maps(tmp_path / "run")[3]["visits"] != [9]
    lines = (tmp_path / "run" / "maps.jsonl").read_text().splitlines()
    assert all(json.loads(line) for line in lines)  # the one that was cut is gone


@pytest.mark.parametrize("bonus", ["db", "rnd", "count", "none"])
def test_maps_on_or_off_leave_the_run_the_same(tmp_path, monkeypatch, bonus):
    def weights(name):
        config = dataclasses.replace(
            rooms(tmp_path / name, bonus=bonus, bonus_options={}, steps=128)
        )
        ssedb.train(config)
        state = ssedb.runs.checkpoint.load_latest(tmp_path / name / "checkpoints")[0]
        return torch.cat(
            [v.flatten().double() for part in ("policy", "bonus") for v in state[part].values()]
        ), state["rng"]

    with_maps = weights("with")
    monkeypatch.setattr("ssedb.runs.maps.MapLog.record", lambda self: None)
    without = weights("without")
    assert not (tmp_path / "without" / "maps.jsonl").exists()
    assert len(read_maps(tmp_path / "with")) == 3
    assert all(torch.equal(a, b) for a, b in zip(with_maps, without, strict=True))
    assert (read_maps(tmp_path / "with")[-1]["bonus"] is None) == (bonus == "none")


def test_maps_outside_of_rooms_are_not_written(tmp_path):
    sizes = dict(num_envs=1, minibatch_envs=1, steps=32, obs_norm_steps=16)
    ssedb.train(tiny_config(tmp_path / "game", env="breakout", **sizes))
    assert not (tmp_path / "game" / "maps.jsonl").exists()
    trainer = Trainer(tiny_config(tmp_path / "x", env="rooms-small"))
    trainer.collector.env = trainer.env.env  # not behind a noise: not known
    maps.MapLog(tmp_path, trainer).record()
    assert not (tmp_path / "maps.jsonl").exists()


def test_cell_means_of_known_visits_match_hand_computation():
    world = World("small")
    states = torch.tensor([3, 3, 7]) * world.scenes_per_cell + torch.tensor([0, 5, 1])
    data = Transitions(torch.zeros(0), torch.zeros(0), torch.zeros(3, dtype=torch.int64), states)
    found = mean_by_cell(torch.tensor([1.0, 4.0, 0.25]), data, world)
    assert (found[3], found[7]) == (2.5, 0.25)
    assert found.count(None) == len(world.cells) - 2
    diverged = mean_by_cell(torch.tensor([1.0, math.nan, math.inf]), data, world)
    assert diverged == [None] * len(world.cells)
