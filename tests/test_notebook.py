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
    assert list(namespace["shares"]) == ["rnd", "db-ensemble"]
    assert all(0 <= share <= 1 for share in namespace["shares"].values())
    assert (tmp_path / "runs" / "notebook" / "noise-shares.png").stat().st_size > 1000


def test_notebook_in_the_repository_shows_outputs_of_its_own_settings():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    printed = "".join("".join(o["text"]) for o in outputs if o["output_type"] == "stream")
    pictures = [o["data"]["image/png"] for o in outputs if o["output_type"] == "display_data"]
    namespace: dict = {}
    exec("".join(next(c["source"] for c in cells if c["cell_type"] == "code")), namespace)
    assert printed.count(f"{namespace['SETTINGS']['steps']:,} steps") == 2
    assert len(pictures) == 2
    assert NOTEBOOK.stat().st_size < 100_000
