"""One sweep that several tests look at."""

import pytest

from ssedb.sweep.grid import read_grid
from ssedb.sweep.pool import run_pool
from tests.sweep.grids import TOY, Killing, write_grid


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """8 runs and one that cannot work, two of whose workers were killed on the way."""
    folder = tmp_path_factory.mktemp("pool")
    grid = read_grid(write_grid(folder), folder / "runs", {"device": "cpu"})
    bad = read_grid(
        write_grid(folder, TOY.replace("rooms-small", "CartPole-v1")),
        folder / "runs",
        {"device": "cpu"},
    ).runs[0]
    display = Killing([*grid.runs, bad], [grid.runs[1], grid.runs[6]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # sums in another order have other last digits
        outcome = run_pool([bad, *grid.runs], probe=False, display=display, device="cpu", jobs=2)
    return folder, grid, bad, display, outcome
