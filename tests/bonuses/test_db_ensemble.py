"""DB-ensemble: reward and loss against NumPy, gradients, and a reward that fades with data."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import ssedb
from ssedb.networks import Ensemble
from ssedb.objectives import information_gain
from ssedb.updates import bonus_step
from tests.toy import SIDE, TINY_OPTIONS, Grid, transitions

MODELS = 3


@pytest.fixture(params=["z", "direction"])
def bonus(request):
    torch.manual_seed(0)
    sizes = dict(models=MODELS, model_dim=16, memory=64, model_input=request.param)
    made = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, **sizes, **TINY_OPTIONS)
    with torch.no_grad():  # or nothing would tell the momentum copies from the online weights
        for parameter in made.momentum_projection.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


@pytest.fixture(scope="module")
def batch():
    return tuple(x[:48] for x in transitions(Grid(8), 20))


def plain_predictions(bonus, z):
    """Every model by itself, in float64: [K, B, Z]."""
    scale, ensemble = bonus.scale, bonus.ensemble
    z = (z - scale.mean.double().numpy()) / np.sqrt((scale.square - scale.mean**2).double().numpy())
    if bonus.options.model_input == "direction":
        z = z / np.sqrt((z**2).mean(-1, keepdims=True))
    found = []
    for k in range(MODELS):
        x = z
        for number, (weight, bias) in enumerate(
            zip(ensemble.weights, ensemble.biases, strict=True)
        ):
            x = np.where(x > 0, x, 0.2 * x) if number else x
            x = x @ weight[k].detach().double().numpy() + bias[k].detach().double().numpy()
        found.append(x)
    return np.stack(found)


def plain_errors(bonus, batch):
    """Every model's squared error in float64, a mean over dimensions: [K, B]."""
    target = bonus.momentum_projection(bonus.target(batch[2])).detach().double().numpy()
    z = bonus.features(*batch[:2]).double().numpy()
    return ((plain_predictions(bonus, z) - target) ** 2).mean(-1)


def test_db_ensemble_reward_is_the_spread_of_the_models(bonus, batch):
    bonus.scale.observe(torch.randn(64, bonus.options.latent_dim) * 3 + 1)
    predictions = plain_predictions(bonus, bonus.features(*batch[:2]).double().numpy())
    expected = np.sqrt(((predictions - predictions.mean(0)) ** 2).mean(0).mean(-1))
    np.testing.assert_allclose(bonus.reward(*batch), expected, rtol=1e-4)


class PosteriorDraws(nn.Module):
    """Linear models s' = W eta, W drawn from its posterior given data [M, D]; all else N(0, I)."""

    def __init__(self, models: int, outputs: int, data: torch.Tensor) -> None:
        super().__init__()
        self.covariance = (torch.eye(data.shape[1]) + data.T @ data).inverse()
        root = torch.linalg.cholesky(self.covariance)
        self.draws = torch.randn(models, outputs, data.shape[1]) @ root.T

    def forward(self, eta: torch.Tensor) -> torch.Tensor:
        return torch.einsum("kod,bd->kbo", self.draws, eta)


@pytest.mark.parametrize("bonus", ["z"], indirect=True)
def test_db_ensemble_reward_in_the_linear_case_is_the_ucb_bonus_of_theorem_1(bonus):
    dim, outputs = bonus.options.latent_dim, 32
    torch.manual_seed(1)
    eta = torch.nn.functional.normalize(torch.randn(20, dim))
    bonus.ensemble = PosteriorDraws(2000, outputs, data=eta[:10].repeat(5, 1))
    bonus.represent = lambda obs, actions: (eta, None)
    ucb = torch.einsum("bd,de,be->b", eta, bonus.ensemble.covariance, eta).sqrt()
    reward = bonus.reward(*(torch.zeros(20) for _ in range(3)))
    torch.testing.assert_close(reward, ucb, rtol=0.03, atol=0)  # of 2000 draws
    assert reward[:10].max() < 0.7 * reward[10:].min()  # seen five times, and never
    root = information_gain(eta, bonus.ensemble.covariance, outputs).sqrt()
    assert (root <= (outputs / 2) ** 0.5 * ucb).all()
    assert (root >= (outputs / 4) ** 0.5 * ucb).all()


@pytest.mark.parametrize("masked", [False, True])
def test_db_ensemble_loss_adds_every_models_squared_error(bonus, batch, masked):
    mask = torch.arange(len(batch[1])) % 3 > 0 if masked else None
    torch.manual_seed(1)
    loss, metrics = bonus.loss(*batch, mask)
    torch.manual_seed(1)
    without = ssedb.make_bonus("db", (4, SIDE, SIDE), 4, **TINY_OPTIONS)
    without.load_state_dict(
        {
            k: v
            for k, v in bonus.state_dict().items()
            if k.split(".")[0] not in ("scale", "ensemble", "memory")
        }
    )
    torch.manual_seed(1)
    base, _ = without.loss(*batch, mask)
    errors = plain_errors(bonus, batch)
    kept = errors if mask is None else errors[:, mask.numpy()]
    assert (loss - base).item() == pytest.approx(kept.mean(1).sum(), rel=1e-3)
    assert float(metrics["ensemble_error"]) == pytest.approx(kept.mean(), rel=1e-4)


def test_db_ensemble_loss_with_a_memory_adds_the_errors_on_stored_transitions(
    bonus, batch, monkeypatch
):
    stored = tuple(x[32:48] for x in batch)
    monkeypatch.setattr(bonus.memory, "sample", lambda count: stored)
    losses = []
    for seen in (0, 16):  # nothing to recall yet, and something
        bonus.memory.seen.fill_(seen)
        torch.manual_seed(1)
        loss, metrics = bonus.loss(*(x[:32] for x in batch))
        losses.append(loss.item())
    errors = plain_errors(bonus, stored)
    assert losses[1] - losses[0] == pytest.approx(errors.mean(1).sum(), rel=1e-3)
    assert float(metrics["memory_error"]) == pytest.approx(errors.mean(), rel=1e-4)


def test_db_ensemble_observe_fills_the_memory_unless_it_has_no_places(bonus, batch):
    bonus.observe(*batch)
    whole = (batch[0][:, 1:] == batch[2][:, :-1]).flatten(1).all(1)
    assert int(bonus.memory.seen) == whole.sum() > 0
    without = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, memory=0, **TINY_OPTIONS)
    without.observe(*batch)
    assert "memory_error" not in without.loss(*batch)[1]


def test_db_ensemble_memory_keeps_as_many_transitions_as_its_option_says(batch):
    bonus = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, memory=5, **TINY_OPTIONS)
    bonus.observe(*batch)
    assert len(bonus.state_dict()["memory.actions"]) == 5


def test_db_ensemble_with_a_memory_does_not_forget_what_rollouts_no_longer_show(batch):
    """Trained on one half of the transitions after another, the models still agree on the first."""
    first, second = (tuple(x[half] for x in batch) for half in (slice(24), slice(24, 48)))
    spread = {}
    for memory in (0, 64):
        torch.manual_seed(0)
        options = dict(TINY_OPTIONS, memory=memory, model_dim=32, channels=(4, 4, 4))
        bonus = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, **options)
        adam = torch.optim.Adam(bonus.ensemble.parameters(), lr=3e-3)
        for shown in (first, second):
            for _ in range(20):
                bonus.scale.observe(bonus.represent(*batch[:2])[0])
            bonus.observe(*shown)
            for _ in range(60):
                adam.zero_grad()
                bonus.loss(*shown)[0].backward()
                adam.step()
        spread[memory] = float(bonus.reward(*first).mean())
    assert spread[64] < 0.8 * spread[0]


def test_db_ensemble_gives_the_representation_no_gradient(batch):
    options = {**TINY_OPTIONS, "alpha1": 0.0, "alpha2": 0.0, "alpha3": 0.0, "memory": 64}
    alone = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, **options)
    alone.observe(*batch)
    loss, _ = alone.loss(*batch)
    loss.backward()
    moved = {
        name.split(".")[0]
        for name, p in alone.named_parameters()
        if p.grad is not None and p.grad.abs().max() > 0
    }
    assert moved == {"ensemble"}


def test_db_ensemble_inputs_follow_the_scale_of_z(bonus, batch):
    before = bonus.scale.mean.clone()
    for _ in range(5):
        bonus.observe(*batch)
    z = bonus.features(*batch[:2])
    expected = (1 - 0.99**5) * z.mean(0)
    torch.testing.assert_close(bonus.scale.mean - before, expected, rtol=1e-3, atol=1e-5)


def test_db_ensemble_reward_of_a_direction_does_not_know_the_length_of_z(bonus, batch):
    z = bonus.features(*batch[:2])
    rewards = []
    for length in (1.0, 0.1):
        bonus.represent = lambda obs, actions, length=length: (length * z, None)
        rewards.append(bonus.reward(*batch))
    same = torch.allclose(*rewards, rtol=1e-3)
    assert same == (bonus.options.model_input == "direction")


def test_db_ensemble_rewards_short_z_that_is_new_if_models_see_its_direction(monkeypatch):
    """As in training: z is long where data are many, and near 0 where they are rare."""
    ratio = {}
    for kind in ("z", "direction"):
        torch.manual_seed(0)
        options = dict(TINY_OPTIONS, memory=0, model_input=kind)
        bonus = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, **options)
        monkeypatch.setattr(bonus, "represent", lambda z, actions: (z, None))
        common, rare = torch.randn(2, 256, 32)
        rare *= 0.2
        actual = bonus.momentum_projection(common @ torch.randn(32, 64))
        adam = torch.optim.Adam(bonus.ensemble.parameters(), lr=1e-3)
        for _ in range(200):
            adam.zero_grad()
            bonus.loss_over(common, actual, None)[0].backward()
            adam.step()
        rewards = (bonus.reward(z, None, None).mean() for z in (rare, common))
        ratio[kind] = float(next(rewards) / next(rewards))
    assert ratio["direction"] > 2 * ratio["z"]


def trained(reward_by, batch, steps=4):
    """Train a bonus on a batch; return it, and its weights before and after each step."""
    torch.manual_seed(0)
    options = dict(TINY_OPTIONS, memory=0, reward_by=reward_by, tau=0.8)
    bonus = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, **options)
    adam = torch.optim.Adam([p for p in bonus.parameters() if p.requires_grad], lr=1e-2)
    weights = [copy.deepcopy(bonus.state_dict())]
    for _ in range(steps):
        bonus_step(bonus, adam, batch)
        weights.append(copy.deepcopy(bonus.state_dict()))
    return bonus, weights


def test_db_ensemble_reward_by_momentum_is_that_of_averaged_weights(batch):
    bonus, weights = trained("momentum", batch)
    plain, _ = trained("online", batch)
    assert not torch.allclose(bonus.reward(*batch), plain.reward(*batch), rtol=1e-2)
    averages = {name: weights[0][name] for name, _ in plain.named_parameters()}
    for after in weights[1:]:
        averages = {name: 0.8 * mean + 0.2 * after[name] for name, mean in averages.items()}
    plain.load_state_dict(plain.state_dict() | averages)
    torch.testing.assert_close(bonus.reward(*batch), plain.reward(*batch), rtol=1e-4, atol=1e-6)


def test_db_ensemble_reward_by_momentum_begins_as_the_other_and_changes_no_training(batch):
    start = [trained(how, batch, steps=0)[0].reward(*batch) for how in ("momentum", "online")]
    assert torch.equal(*start)
    bonus, plain = (trained(how, batch)[0] for how in ("momentum", "online"))
    for name, parameter in plain.named_parameters():
        assert torch.equal(bonus.get_parameter(name), parameter), name


def test_db_ensemble_models_match_separate_networks():
    torch.manual_seed(0)
    ensemble, x = Ensemble(2, 3, 4, 5), torch.randn(6, 3)
    found = ensemble(x)
    assert found.shape == (2, 6, 5)
    assert not torch.allclose(found[0], found[1])


def test_db_ensemble_reward_fades_with_data_and_not_with_noise(monkeypatch):
    """Over a fixed z: one cloud is trained on under unpredictable noise, the other never seen."""
    torch.manual_seed(0)
    bonus = ssedb.make_bonus("db-ensemble", (4, SIDE, SIDE), 4, memory=0, **TINY_OPTIONS)
    monkeypatch.setattr(bonus, "represent", lambda z, actions: (z, None))
    seen, unseen = (torch.randn(256, 32) + side * torch.ones(32) for side in (-1, 1))
    states = seen @ torch.randn(32, 64)
    adam = torch.optim.Adam(bonus.ensemble.parameters(), lr=1e-3)
    first = bonus.reward(seen, None, None).mean()
    for _ in range(200):
        adam.zero_grad()
        actual = bonus.momentum_projection(states + 4 * torch.randn_like(states))
        loss, metrics = bonus.loss_over(seen, actual, None)
        loss.backward()
        adam.step()
    assert metrics["ensemble_error"].sqrt() > 0.3  # the noise is there to stay
    assert bonus.reward(seen, None, None).mean() < 0.5 * first
    assert bonus.reward(seen, None, None).mean() < 0.5 * bonus.reward(unseen, None, None).mean()
