"""Runs of every kind: finished, stopped, failed, planned, damaged, collapsed, NaN, hostile name."""

import json
import re
import shutil

import pytest

import ssedb
from ssedb.compare.references import MEASURED
from tests.helpers import make_run
from tests.toy import tiny_config

HOSTILE = "<img src=x onerror=pwned=1>"
HOSTILE_BONUS = "</script><script>pwned=1</script>"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("report") / "runs"
    settings = dict(
        env="rooms-small",
        steps=256,
        obs_norm_steps=16,
        rollout_steps=8,
        num_envs=8,
        checkpoint_minutes=0,
    )
    for noise in ("random-box", "none"):
        for bonus, options in (("db", None), ("rnd", {"feature_dim": 16, "channels": (4, 4, 4)})):
            for seed in (0, 1) if noise == "random-box" else (0,):
                changes = {} if options is None else {"bonus_options": options}
                out = root / f"{noise}-{bonus}-{seed}"
                ssedb.train(
                    tiny_config(out, noise=noise, bonus=bonus, seed=seed, **settings, **changes)
                )

    stopped = root / "stopped"
    shutil.copytree(root / "random-box-db-1", stopped)
    lines = (stopped / "metrics.jsonl").read_text().splitlines()
    (stopped / "metrics.jsonl").write_text("\n".join(lines[:2]) + '\n{"steps": 4')
    for name in ("summary.json", "maps.jsonl"):
        (stopped / name).unlink()
    config = (stopped / "config.toml").read_text().replace("seed = 1", "seed = 2")
    (stopped / "config.toml").write_text(config)

    failed = root / HOSTILE
    failed.mkdir()
    (failed / "config.toml").write_text(
        config.replace('bonus = "db"', f'bonus = "{HOSTILE_BONUS}"')
    )
    (failed / "failure.json").write_text(
        json.dumps({"error": "<b>bonus_loss is nan</b>", "attempts": 2})
    )

    shut = root / "shut"
    shutil.copytree(root / "random-box-db-0", shut)
    rows = [json.loads(line) for line in (shut / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row |= {"i_upper": 0.004, "i_nce": row["i_nce_chance"] - 0.01}
    rows[1]["value_loss"] = float("nan")
    (shut / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (shut / "config.toml").write_text(config.replace("seed = 2", "seed = 3"))

    damaged = root / "damaged"
    damaged.mkdir()
    (damaged / "config.toml").write_text("env = [broken")
    (root / "plan.json").write_text(
        json.dumps(
            {
                "runs": [
                    {
                        "folder": "planned",
                        "config": {"env": "rooms-small", "noise": "none", "bonus": "db", "seed": 9},
                    }
                ]
            }
        )
    )
    return root


@pytest.fixture
def bottlenecks(runs, tmp_path):
    """Make runs with different bottlenecks: I_upper, and I_nce over that of blind guessing."""

    def make(**ends):
        root = tmp_path / "bottlenecks"
        for seed, (name, (upper, over)) in enumerate(ends.items()):
            folder = root / name
            folder.mkdir(parents=True)
            config = (
                (runs / "random-box-db-0" / "config.toml")
                .read_text()
                .replace("seed = 0", f"seed = {seed}")
            )
            if name.startswith("no_nce"):
                config = re.sub("alpha3 = .*", "alpha3 = 0.0", config)
            (folder / "config.toml").write_text(config)
            rows = [
                {
                    "steps": 64 * i,
                    "i_upper": upper,
                    "i_pred": -1.0,
                    "i_nce": -5 + over,
                    "i_nce_chance": -5.0,
                }
                for i in range(1, 5)
            ]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return root

    return make


@pytest.fixture(scope="session")
def noisy_games(tmp_path_factory):
    """Two games with and without boxes: RND is better without, DB is better with them."""
    root = tmp_path_factory.mktemp("games")
    times_random = {("db", "none"): 4, ("db", "random-box"): 4, ("rnd", "none"): 20}
    for game in ("breakout", "gopher"):
        random = MEASURED[game].mean
        for (bonus, noise), times in {**times_random, ("rnd", "random-box"): 2}.items():
            own = {"bonus": bonus, "bonus_options": {}, "noise": noise}
            make_run(root / f"{game}-{bonus}-{noise}", env=game, score=times * random, **own)
    return root
