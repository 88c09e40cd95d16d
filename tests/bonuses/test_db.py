"""The DB model: sizes, gradients, momentum, and that it learns what it should."""

import math

import numpy as np
import pytest
import torch

import ssedb
from ssedb.bonuses.db import effective_rank
from ssedb.normalize import to_blocks
from tests.bonuses import plain
from tests.toy import TINY_OPTIONS, Grid, transitions

SHAPE = (4, 36, 36)


def small_db(**options):
    torch.manual_seed(0)
    return ssedb.make_bonus("db", SHAPE, 4, **{**TINY_OPTIONS, **options})


@pytest.fixture(scope="module")
def batch():
    return transitions(Grid(num_envs=32, seed=0), 40)


@pytest.mark.parametrize(
    ("actions", "total", "trained"), [(4, 5_134_145, 3_285_025), (18, 5_155_649, 3_306_529)]
)
def test_db_as_released_has_its_parameter_counts(actions, total, trained):
    bonus = ssedb.make_bonus("db", obs_shape=(4, 84, 84), num_actions=actions, fidelity="released")
    parts = {
        name: sum(p.numel() for p in part.parameters())
        for name, part in (
            ("posterior", bonus.posterior),
            ("head", bonus.head),
            ("projection", bonus.projection),
        )
    }
    assert parts == {
        "posterior": {4: 466_432, 18: 487_936}[actions],
        "head": 953_089,
        "projection": 164_992,
    }
    assert bonus.score_weight.numel() == 16_384
    assert sum(p.numel() for p in bonus.parameters()) == total
    assert sum(p.numel() for p in bonus.parameters() if p.requires_grad) == trained


def test_db_fidelities_differ_as_documented():
    paper, released = small_db(), small_db(fidelity="released")
    assert (paper.options.bonus_root, released.options.bonus_root) == ("sqrt", "none")
    assert (paper.options.nce_input, released.options.nce_input) == ("mean", "sample")
    assert paper.posterior.last.in_features == 64
    assert released.posterior.last.in_features == 64 + 4  # the action joins every layer
    assert hasattr(paper.head, "std")
    assert released.head.free_std.item() == 1.0
    assert (
        0 <= paper.score_weight.min() < 0.05 < 0.95 < paper.score_weight.max() < 1
    )  # drawn from U[0, 1)
    assert small_db(fidelity="released", bonus_root="sqrt").options.bonus_root == "sqrt"


def test_db_momentum_copies_start_equal_and_get_no_gradient(batch):
    bonus = small_db()
    loss, _ = bonus.loss(*batch)
    loss.backward()
    for copy, online in (
        (bonus.momentum_encoder, bonus.encoder),
        (bonus.momentum_projection, bonus.projection),
    ):
        for momentum, weight in zip(copy.parameters(), online.parameters(), strict=True):
            assert torch.equal(momentum, weight)
            assert momentum.grad is None
            assert not momentum.requires_grad
            assert weight.grad is not None
    assert bonus.score_weight.grad.abs().max() > 0


@pytest.mark.parametrize("term", ["alpha1", "alpha2", "alpha3"])
def test_db_encoder_gets_a_gradient_from_each_term_alone(batch, term):
    bonus = small_db(**{"alpha1": 0.0, "alpha2": 0.0, "alpha3": 0.0, term: 1.0})
    bonus.loss(*batch)[0].backward()
    assert bonus.encoder.trunk.conv1.weight.grad.abs().max() > 0


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_db_momentum_copies_move_by_tau_after_each_update(every):
    bonus = small_db(momentum_every=every, tau=0.75)
    with torch.no_grad():
        for weight in (bonus.encoder.dense.bias, bonus.projection[0].bias):
            weight.fill_(4.0)
    moving, resting = (
        (bonus.after_step, bonus.after_epoch)
        if every == "step"
        else (bonus.after_epoch, bonus.after_step)
    )
    resting()
    assert bonus.momentum_encoder.dense.bias.abs().max() == 0
    moving()
    torch.testing.assert_close(
        bonus.momentum_encoder.dense.bias, torch.full((64,), 1.0)
    )  # 0.75 * 0 + 0.25 * 4
    torch.testing.assert_close(bonus.momentum_projection[0].bias, torch.full((64,), 1.0))


@pytest.mark.parametrize(
    "settings",
    [
        dict(fidelity="paper"),
        dict(fidelity="released"),
        dict(fidelity="ours"),
        dict(fidelity="paper", nce_input="sample"),
        dict(fidelity="ours", nce_input="sample", bonus_root="none"),
        dict(fidelity="released", nce_input="mean", momentum_target=False),
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
@pytest.mark.parametrize("masked", [False, True])
def test_db_loss_and_reward_match_plain_numpy(settings, masked):
    obs, actions, next_obs = plain.batch(10)
    bonus = plain.make(
        "db",
        **{**TINY_OPTIONS, "channels": (4, 4, 4)},
        alpha1=0.3,
        alpha2=0.2,
        alpha3=0.1,
        **settings,
    )
    for momentum in (bonus.momentum_encoder, bonus.momentum_projection):
        for weight in momentum.parameters():  # so that it shows who makes the targets
            weight.data.add_(0.1 * torch.rand_like(weight))
    keep = np.arange(10) % 3 != 1 if masked else np.ones(10, bool)
    torch.manual_seed(5)
    loss, metrics = bonus.loss(obs, actions, next_obs, torch.from_numpy(keep) if masked else None)
    torch.manual_seed(5)
    draws = [plain.array(torch.randn(10, size)) for size in (32, 64)]  # of z, and of the next state

    z_mean, z_std = plain.posterior(bonus, obs, actions)
    frames = plain.normalized(bonus, next_obs)
    if bonus.options.target_frames == "newest":
        frames[:, :-1] = 0
    target = plain.encoder(
        bonus.momentum_encoder if bonus.options.momentum_target else bonus.encoder, frames
    )
    mean, std = plain.prediction(bonus, z_mean + z_std * draws[0])
    std = np.sqrt(np.mean((target - mean)[keep] ** 2)) if std is None else std
    contrasted = mean if bonus.options.nce_input == "mean" else mean + std * draws[1]
    projected = plain.projection(bonus.projection, contrasted) @ plain.array(bonus.score_weight)
    scores = (projected @ plain.projection(bonus.momentum_projection, target).T)[keep][:, keep]
    nats = np.array(
        [plain.kl(m, s, np.zeros(32), np.ones(32)) for m, s in zip(z_mean, z_std, strict=True)]
    )
    log_q = -0.5 * ((target - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    expected = {
        "i_upper": nats[keep].mean(),
        "i_pred": log_q.sum(1)[keep].mean(),
        "i_nce": np.mean([row[i] - np.log(np.exp(row).sum()) for i, row in enumerate(scores)]),
        "prediction_std": np.mean(std),
    }
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        expected, rel=1e-3
    )
    weighed = 0.3 * expected["i_upper"] - 0.2 * expected["i_pred"] - 0.1 * expected["i_nce"]
    assert loss.item() == pytest.approx(weighed, rel=1e-3)
    root = np.sqrt(nats) if bonus.options.bonus_root == "sqrt" else nats
    np.testing.assert_allclose(bonus.reward(obs, actions, next_obs), root, rtol=1e-3)


@pytest.mark.parametrize(("raw", "std"), [(-60.0, 1e-3), (1e6, 1e5)])
def test_db_representation_std_stays_between_a_thousandth_and_a_hundred_thousand(batch, raw, std):
    bonus = small_db()
    with torch.no_grad():
        bonus.posterior.last.weight[32:] = 0
        bonus.posterior.last.bias[32:] = raw
    reward = bonus.reward(*batch)
    means = plain.array(bonus.features(*batch[:2]))
    nats = 0.5 * (means**2 + std**2 - 1).sum(1) - 32 * math.log(std)
    np.testing.assert_allclose(reward, np.sqrt(nats), rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "raw", "std"),
    [("head", -60.0, 1e-3), ("scalar", -3.0, 0.1), ("scalar", 1.0, 1.3132617)],
)
def test_db_prediction_std_has_a_floor(batch, kind, raw, std):
    bonus = small_db(prediction_std=kind)
    with torch.no_grad():
        if kind == "head":
            bonus.head.std.weight.zero_()
        (bonus.head.std.bias if kind == "head" else bonus.head.free_std).fill_(raw)
    loss, metrics = bonus.loss(*batch)
    assert metrics["prediction_std"].item() == pytest.approx(std, rel=1e-5)
    if kind == "scalar":
        loss.backward()
        assert (bonus.head.free_std.grad == 0) == (
            raw < 0
        )  # at the floor it sticks, as in the release


def test_db_loss_with_the_wrong_next_observation_is_worse(batch):
    obs, actions, next_obs = batch
    bonus = small_db(alpha1=0.001, alpha3=1.0)
    fit(bonus, batch, 100)
    right = bonus.loss(obs, actions, next_obs)[1]["i_nce"]
    for wrong in (next_obs.roll(1, 0), obs):  # another pair's, and the one before
        assert right > bonus.loss(obs, actions, wrong)[1]["i_nce"] + 0.5


def test_db_reward_is_repeatable_positive_without_gradient_and_changes_nothing(batch):
    bonus = small_db()
    before = {k: v.clone() for k, v in bonus.state_dict().items()}
    first, second = bonus.reward(*batch), bonus.reward(*batch)
    assert first.shape == (len(batch[0]),)
    assert first.dtype == torch.float32
    assert not first.requires_grad
    assert torch.equal(first, second)
    assert (first > 0).all()
    assert all(torch.equal(v, before[k]) for k, v in bonus.state_dict().items())


def test_db_reward_depends_on_observation_and_action_only(batch):
    obs, actions, next_obs = batch
    bonus = small_db()
    reward = bonus.reward(obs, actions, next_obs)
    assert torch.equal(reward, bonus.reward(obs, actions, next_obs.flip(0)))
    assert not torch.equal(reward, bonus.reward(obs, (actions + 1) % 4, next_obs))


def test_db_reward_as_released_is_the_square_of_the_papers(batch):
    bonus = small_db()
    rooted = bonus.reward(*batch)
    bonus.options = type(bonus.options)(**{**bonus.options.__dict__, "bonus_root": "none"})
    torch.testing.assert_close(bonus.reward(*batch), rooted**2)


def test_db_newest_target_does_not_see_the_shared_frames(batch):
    _, _, next_obs = batch
    other = next_obs.clone()
    other[:, :-1] = torch.randint(0, 256, other[:, :-1].shape, dtype=torch.uint8)
    newest, stack = small_db(target_frames="newest"), small_db()
    assert torch.equal(newest.target(next_obs), newest.target(other))
    assert not torch.equal(stack.target(next_obs), stack.target(other))
    for bonus in (newest, stack):  # a GPU's layout
        plain = bonus.target(next_obs)
        bonus.normalize.for_convs = lambda obs, normalize=bonus.normalize: to_blocks(normalize(obs))
        torch.testing.assert_close(bonus.target(next_obs), plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["head", "scalar", "calibrated"])
def test_db_loss_trains_every_prediction_std(batch, kind):
    bonus = small_db(prediction_std=kind, alpha1=0.001)
    first = bonus.loss(*batch)[1]["i_pred"].item()
    fit(bonus, batch, 60)
    assert bonus.loss(*batch)[1]["i_pred"].item() > first + 1


def test_db_loss_leaves_out_boundary_pairs(batch):
    obs, actions, next_obs = batch
    bonus = small_db()
    mask = torch.ones(len(obs), dtype=torch.bool)
    mask[::3] = False
    spoiled = next_obs.clone()
    spoiled[~mask] = 255
    torch.manual_seed(3)
    masked = bonus.loss(obs, actions, next_obs, mask)[1]
    torch.manual_seed(3)
    also = bonus.loss(obs, actions, spoiled, mask)[1]
    for name in ("i_upper", "i_pred", "i_nce"):
        torch.testing.assert_close(masked[name], also[name])


def test_db_state_dict_restores_the_reward(batch):
    first, second = small_db(), small_db()
    fit(first, batch, 3)
    assert not torch.equal(first.reward(*batch), second.reward(*batch))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.reward(*batch), second.reward(*batch))


def fit(bonus, batch, steps, rate=1e-3):
    frames = batch[0].float()
    bonus.normalize.set(frames.mean(0), frames.std(0).mean())
    adam = torch.optim.Adam([p for p in bonus.parameters() if p.requires_grad], lr=rate)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    for _ in range(steps):
        pick = torch.randint(len(batch[0]), (128,), generator=generator)
        loss, _ = bonus.loss(*(x[pick] for x in batch))
        adam.zero_grad()
        loss.backward()
        adam.step()
        bonus.after_step()


def test_db_contrast_rises_above_chance_and_collapse_shows_in_the_rank(batch):
    held_out = [x[:128] for x in transitions(Grid(num_envs=16, seed=9), 20)]
    healthy = small_db(alpha1=0.001, alpha3=1.0)
    collapsed = small_db(alpha1=0.001, alpha3=0.0, momentum_target=False)
    for bonus in (healthy, collapsed):
        fit(bonus, batch, 150)
    assert healthy.loss(*held_out)[1]["i_nce"].item() > -math.log(128) + 0.7
    ranks = [bonus.diagnostics(*held_out)["rank_state"].item() for bonus in (healthy, collapsed)]
    assert ranks[0] > 2 * ranks[1]
    assert healthy.diagnostics(*held_out)["i_nce_chance"].item() == pytest.approx(-math.log(128))


def test_db_diagnostics_are_the_ranks_of_next_states_and_of_z(batch):
    bonus, (obs, actions, next_obs) = small_db(), batch
    found = bonus.diagnostics(obs, actions, next_obs)
    assert torch.equal(found["rank_state"], effective_rank(bonus.target(next_obs)))
    assert torch.equal(found["rank_z"], effective_rank(bonus.features(obs, actions)))


def test_effective_rank_of_known_matrices_is_exact():
    assert effective_rank(torch.ones(20, 6)).item() == pytest.approx(1, abs=1e-4)
    assert effective_rank(torch.eye(6)).item() == pytest.approx(6)
    assert effective_rank(torch.zeros(20, 6)).item() == pytest.approx(1)


def test_db_with_a_shape_that_is_no_stack_is_refused():
    with pytest.raises(ssedb.ConfigError, match=r"obs_shape=\(84, 84\): must be \[C, H, W\]"):
        ssedb.make_bonus("db", (84, 84), 4)
