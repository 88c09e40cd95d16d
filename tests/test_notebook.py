"""The notebook of the docs, run cell by cell with tiny sizes."""

import json
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebook.ipynb"


TINY = dict(steps=256, num_envs=8, rollout_steps=32, obs_norm_steps=64, bonus_epochs=1)


def test_notebook_with_tiny_sizes_draws_the_noise_shares(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), namespace)
        if "parameters" in cell["metadata"].get("tags", ()):
            namespace["SETTINGS"] |= TINY
            namespace["TRANSITIONS"] = 128
    assert list(namespace["shares"]) == ["rnd", "db"]
    assert all(0 <= share <= 1 for share in namespace["shares"].values())
    assert (tmp_path / "runs" / "notebook" / "noise-shares.png").stat().st_size > 1000


def test_notebook_in_the_repository_has_no_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)
