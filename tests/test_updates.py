"""Steps of a bonus model."""

import pytest
import torch

from ssedb.bonuses import make_bonus
from ssedb.errors import TrainingError
from ssedb.updates import bonus_step
from tests.bonuses.plain import batch, make


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


def test_bonus_step_measures_the_whole_gradient_and_then_moves_the_momentum_copies():
    sizes = dict(channels=(4, 4, 4), state_dim=16, hidden_dim=16, latent_dim=8)
    bonus = make("db", tau=0.0, momentum_every="step", **sizes)
    adam = torch.optim.Adam([p for p in bonus.parameters() if p.requires_grad], lr=1e-2)
    metrics = bonus_step(bonus, adam, batch())
    gradient = torch.cat([p.grad.flatten() for p in bonus.parameters() if p.grad is not None])
    assert metrics["bonus_gradient"].item() == pytest.approx(gradient.norm().item(), rel=1e-5)
    for copied, online in (
        (bonus.momentum_encoder, bonus.encoder),
        (bonus.momentum_projection, bonus.projection),
    ):
        for momentum, weight in zip(copied.parameters(), online.parameters(), strict=True):
            assert torch.equal(momentum, weight)
