"""Every bonus on vectors, with actions of every kind."""

import copy

import pytest
import torch

import ssedb
from ssedb.actions import Box, Choices
from ssedb.bonuses.base import Context
from ssedb.errors import ConfigError

DIM, ROWS = 6, 48
SPACES = {
    "discrete": 3,
    "multi-discrete": Choices((3, 2)),
    "continuous": Box((-1.0, 0.0), (1.0, 5.0)),
}
OBS = {"vectors": (DIM,), "images": (4, 36, 36)}


def made(name, space, obs="vectors", **options):
    torch.manual_seed(0)
    return ssedb.make_bonus(name, OBS[obs], SPACES[space], preset="rooms", **options)


def batch(bonus, obs="vectors", seed=0):
    """Transitions, with a context where the bonus uses one."""
    generator = torch.Generator().manual_seed(seed)

    def observations():
        if obs == "vectors":
            return torch.randn(ROWS, *OBS[obs], generator=generator)
        return torch.randint(256, (ROWS, *OBS[obs]), generator=generator, dtype=torch.uint8)

    parts = (observations(), bonus.actions.random(ROWS, generator), observations())
    context = Context(torch.arange(ROWS) // 8, torch.zeros(ROWS, dtype=torch.int64))
    return (*parts, context) if bonus.uses_context else parts


def train(bonus, parts, rounds=3):
    trained = [p for p in bonus.parameters() if p.requires_grad]
    adam = torch.optim.Adam(trained, lr=1e-3) if trained else None
    losses = []
    bonus.observe(*parts)
    for _ in range(rounds):
        loss, _ = bonus.loss(*parts[:3])
        if adam is not None:
            adam.zero_grad()
            loss.backward()
            adam.step()
        losses.append(float(loss.detach()))
        bonus.after_step()
        bonus.after_epoch()
    bonus.after_rollout()
    return losses


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", ssedb.list_bonuses())
def test_bonus_on_vectors_rewards_trains_and_is_restored(name, space):
    bonus = made(name, space)
    parts = batch(bonus)
    losses = train(bonus, parts, rounds=12)
    reward = bonus.reward(*parts)
    assert reward.shape == (ROWS,)
    assert reward.dtype == torch.float32
    assert reward.isfinite().all()
    if any(p.requires_grad for p in bonus.parameters()):
        assert losses[-1] < losses[0]
    assert all(value.isfinite() for value in bonus.diagnostics(*parts[:3]).values())
    torch.manual_seed(9)
    twin = ssedb.make_bonus(name, (DIM,), SPACES[space], preset="rooms")
    twin.load_state_dict(copy.deepcopy(bonus.state_dict()))
    assert torch.equal(twin.reward(*parts), reward)


@pytest.mark.parametrize("space", ["multi-discrete", "continuous"])
@pytest.mark.parametrize("name", ssedb.list_bonuses())
def test_bonus_on_images_takes_actions_of_every_kind(name, space):
    bonus = made(name, space, obs="images")
    parts = batch(bonus, obs="images")
    train(bonus, parts, rounds=1)
    assert bonus.reward(*parts).isfinite().all()


SEES_ACTIONS = [
    "count", "db", "db-count", "db-ensemble", "db-ngu", "db-ucb", "disagreement", "icm", "lbs",
    "lpm", "random-features",
]  # fmt: skip


@pytest.mark.parametrize("space", ["multi-discrete", "continuous"])
@pytest.mark.parametrize("name", SEES_ACTIONS)
def test_bonus_depends_on_every_part_of_the_action(name, space):
    bonus = made(name, space)
    obs, actions, *rest = batch(bonus)
    train(bonus, (obs, actions, *rest), rounds=2)
    usual = bonus.reward(obs, actions, *rest)
    low, high = torch.tensor([0, 0]), torch.tensor([2, 1])
    if space == "continuous":
        low, high = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 5.0])
    for part in range(2):
        other = actions.clone()
        other[:, part] = torch.where(actions[:, part] == high[part], low[part], high[part])
        changed = bonus.reward(obs, other, *rest)
        assert not torch.allclose(changed, usual), part


@pytest.mark.parametrize("name", SEES_ACTIONS)
def test_bonus_does_not_grow_with_an_action_beyond_its_bounds(name):
    bonus = made(name, "continuous")
    obs, actions, *rest = batch(bonus)
    actions = torch.where(actions > 0, torch.tensor([1.0, 5.0]), actions)
    beyond = torch.where(actions > 0, actions * 100, actions)
    assert torch.equal(bonus.reward(obs, beyond, *rest), bonus.reward(obs, actions, *rest))


@pytest.mark.parametrize("target_frames", ["stack", "newest"])
def test_db_on_vectors_predicts_the_whole_next_vector(target_frames):
    bonus = made("db", "discrete", target_frames=target_frames)
    obs = torch.randn(ROWS, DIM)
    for dimension in range(DIM):
        other = obs.clone()
        other[:, dimension] += 1
        assert not torch.allclose(bonus.target(obs), bonus.target(other))


@pytest.mark.parametrize("name", ["db", "rnd", "cb", "count", "e3b"])
def test_bonus_on_vectors_does_not_depend_on_their_units(name):
    units, parts = torch.tensor([1e-3, 1.0, 1e3, 10.0, 0.1, 5.0]), None
    found = []
    for scale in (torch.ones(DIM), units):
        bonus = made(name, "discrete")
        bonus.normalize.set(3 * scale, 2 * scale)
        obs, actions, next_obs, *context = batch(bonus)
        parts = ((3 + 2 * obs) * scale, actions, (3 + 2 * next_obs) * scale, *context)
        train(bonus, parts, rounds=2)
        found.append(bonus.reward(*parts))
    torch.testing.assert_close(found[0], found[1], rtol=1e-2, atol=1e-4)


def test_count_of_vectors_tells_parts_of_a_std_apart_and_not_less():
    bonus = made("count", "discrete", counted="frames", levels=8)
    bonus.normalize.set(torch.full((DIM,), 10.0), torch.full((DIM,), 2.0))
    place = torch.full((1, DIM), 10.2)
    context = Context(torch.zeros(1, dtype=torch.int64))
    action = torch.tensor([1])
    bonus.observe(place, action, place, context)

    def visits(obs, action=action):
        return round(float(bonus.reward(obs, action, obs, context)) ** -2) - 1

    assert visits(place) == 1
    assert visits(place + 1.7) == 1  # within the same std
    assert visits(place + 2.0) == 0
    assert visits(place, torch.tensor([2])) == 0


def test_observations_of_another_shape_are_refused_by_a_bonus_of_vectors():
    with pytest.raises(ConfigError, match=r"made for \[batch, 6\]"):
        made("db", "discrete").reward(
            torch.zeros(2, 7), torch.zeros(2, dtype=torch.int64), torch.zeros(2, 7)
        )


def test_obs_shape_of_two_dimensions_is_refused():
    with pytest.raises(ConfigError, match=r"obs_shape=\(84, 84\): must be \[C, H, W\]"):
        ssedb.make_bonus("db", (84, 84), 3)
