"""What does not split over processes is refused before anything is made."""

import pytest

import ssedb
from ssedb.runs.folder import RunFolder
from tests.toy import tiny_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(num_envs=8), "num_envs=8 does not split over 3 processes; use a multiple of 3"),
        (
            dict(num_envs=12),
            "minibatch_envs=4 does not split over 3 processes; use a multiple of 3",
        ),
        (
            dict(num_envs=12, minibatch_envs=3, engine="fast"),
            "engine=fast: CUDA graphs are for one process",
        ),
        (
            dict(num_envs=12, minibatch_envs=3, device="cuda:1"),
            "device=cuda:1: several processes take a GPU each",
        ),
    ],
)
def test_settings_that_do_not_split_over_processes_are_refused_in_one_line(
    tmp_path, monkeypatch, changes, message
):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ssedb.ConfigError) as error:
        RunFolder.create(tiny_config(tmp_path / "run", **changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()
