"""Episodes for the page: frames on a sheet, and bonuses that went wrong."""

import dataclasses

import numpy as np

from ssedb.compare.results import load_runs
from ssedb.report import explorer
from ssedb.report.explorer import COLUMNS, kept_steps, sheet
from ssedb.report.page import Page
from ssedb.runs.progress import silent


def test_frames_are_laid_on_a_sheet():
    import io

    from PIL import Image

    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8) // 64 * 64
    picture = np.asarray(
        Image.open(io.BytesIO(sheet(np.repeat(np.repeat(frames, 4, 1), 4, 2)))).convert("RGB")
    ).astype(int)
    assert picture.shape == (2 * 32, COLUMNS * 32, 3)
    for i in (0, 24, 25, 29):
        row, column = divmod(i, COLUMNS)
        shown = picture[row * 32 : row * 32 + 32, column * 32 : column * 32 + 32]
        assert np.abs(shown - np.repeat(np.repeat(frames[i], 4, 0), 4, 1)).mean() < 12
    assert kept_steps(5, {2}) == [0, 1, 2, 3, 4]
    kept = kept_steps(4500, {7, 4001}, 1000)
    assert {0, 7, 4001, 4499} <= set(kept)
    assert len(kept) <= 1002


def test_add_episodes_leaves_out_a_bonus_that_is_not_finite(runs, monkeypatch):
    trace = explorer.trace_bonus

    def diverged(episode, run, device):
        found = trace(episode, run, device)
        return dataclasses.replace(found, bonus=np.full_like(found.bonus, np.nan))

    monkeypatch.setattr(explorer, "trace_bonus", diverged)
    page = Page({"title": "t", "episodes": []})
    run = runs / "random-box-db-0"
    complaints = explorer.add_episodes(page, load_runs(run), 1, "cpu", silent)
    assert complaints == [f"{run}: the bonus of db is not finite"]
    assert page.data["episodes"] == []


def test_add_episodes_counts_agents_that_have_none(runs):
    found = load_runs(runs)
    agents = len({(run.env, run.noise, run.method) for run in found if run.config.get("steps")})
    page = Page({"title": "t", "episodes": []})
    (complaint,) = explorer.add_episodes(page, found, 0, "cpu", silent)
    count = int(complaint.split()[0])
    assert complaint == (
        f"{count} agents have no episode on the page; `--episodes {count}` shows all"
    )
    assert 1 < count <= agents


def test_add_episodes_names_the_agent_whose_own_bonus_failed(runs, monkeypatch):
    trace = explorer.trace_bonus
    chosen = [run for run in load_runs(runs) if run.noise == "random-box"]
    own = runs / "random-box-db-0"

    def failing(episode, run, device):
        if run == own:
            raise RuntimeError("it broke")
        return trace(episode, run, device)

    monkeypatch.setattr(explorer, "trace_bonus", failing)
    page = Page({"title": "t", "episodes": []})
    explorer.add_episodes(page, chosen, 1, "cpu", silent)
    (entry,) = page.data["episodes"]
    assert entry["agent"] == "db"
    assert "db" not in [trace["name"] for trace in entry["traces"]]
