"""What the bench makes of its times; how fast anything is, no test can say."""

import numpy as np
import pytest

from ssedb.bench import SideBySide, library_vector, side_by_side
from ssedb.trainer import Trainer
from tests.toy import tiny_config


def test_ratios_are_over_all_rounds_with_the_error_between_rounds():
    got = SideBySide(100, {"alone": [1.0, 1.0, 2.0], "trained": [1.0, 2.0, 2.0]})
    assert got.rate("trained") == pytest.approx(300 / 5)
    assert got.ratio("alone") == pytest.approx(4 / 5)
    error = np.std([1, 0.5, 1], ddof=1) / 3**0.5
    assert got.against("alone") == f"0.800 +- {error:.3f}"
    assert got.columns() == ["-", "75", "60", "-", got.against("alone")]
    assert SideBySide(100, {"alone": [1.0], "trained": [2.0]}).against("alone") == "0.500"


def test_bench_times_emulators_the_library_and_training_alternately(tmp_path):
    config = tiny_config(tmp_path, env="breakout", num_envs=2, minibatch_envs=2, rollout_steps=8)
    trainer, library = Trainer(config), library_vector(config)
    got = side_by_side(trainer, 2, library)
    assert {what: len(seconds) for what, seconds in got.seconds.items()} == {
        "library": 2,
        "alone": 2,
        "trained": 2,
    }
    assert library.num_envs == config.num_envs
    assert got.steps == config.rollout_size
    assert library_vector(tiny_config(tmp_path, env="rooms-small")) is None
    trainer.close()
    library.close()
