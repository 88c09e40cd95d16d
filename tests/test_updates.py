"""Steps of a bonus model."""

import pytest
import torch

from ssedb.bonuses import make_bonus
from ssedb.errors import TrainingError
from ssedb.updates import bonus_step


@pytest.mark.parametrize("bonus", ["rnd", "db"])
def test_bonus_step_without_a_gradient_names_the_bonus(bonus):
    model = make_bonus(bonus, (4,), 3, preset="rooms")
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    obs = torch.rand(8, 4)
    transitions = obs, torch.zeros(8, dtype=torch.int64), obs
    assert bonus_step(model, adam, transitions)["bonus_gradient"] > 0
    with torch.no_grad(), pytest.raises(TrainingError, match=f"{type(model).__name__}.loss gave"):
        bonus_step(model, adam, transitions)


def test_bonus_step_of_a_bonus_without_parameters_takes_none():
    model = make_bonus("re3", (4,), 3, preset="rooms")
    adam = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    obs = torch.rand(8, 4)
    metrics = bonus_step(model, adam, (obs, torch.zeros(8, dtype=torch.int64), obs))
    assert set(metrics) == {"bonus_loss"}
