"""Steps of a bonus model."""

import pytest
import torch

from ssedb.updates import bonus_step
from tests.bonuses.plain import batch, make


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
