"""`ssedb.IntrinsicReward`: samples in, intrinsic rewards out."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ssedb
from ssedb.integrations.spaces import make_observations
from ssedb.normalize import RewardNorm

from .corridor import CLOCK, DIARY, LENGTH, SPACES, Clock, Corridor, Diary, rollout, small


@pytest.fixture(autouse=True)
def nothing_remembered():
    for remembered in (Clock.rewarded, Clock.trained, Diary.episodes):
        remembered.clear()


def weights(reward: ssedb.IntrinsicReward) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in reward.bonus.state_dict().values()])


def same_future(one: ssedb.IntrinsicReward, other: ssedb.IntrinsicReward) -> bool:
    """Whether both answer alike and learn alike, from here on."""
    samples = rollout(seed=5)
    answers = [torch.equal(one.compute(samples), other.compute(samples)) for _ in range(2)]
    return all(answers) and torch.equal(weights(one), weights(other))


@pytest.mark.parametrize(
    "bonus", ["db", "disagreement", "icm", "rnd", "re3", "e3b", "count", CLOCK]
)
def test_compute_rewards_every_step_and_sync_changes_only_the_state(bonus):
    reward = small(bonus)
    peeked = reward.compute(rollout(), sync=False)
    before = weights(reward)
    assert torch.equal(reward.compute(rollout(), sync=False), peeked)
    assert torch.equal(weights(reward), before)
    assert torch.equal(reward.compute(rollout()), peeked)
    assert peeked.shape == (8, 3)
    assert peeked.dtype == torch.float32
    assert (peeked >= 0).all()
    assert peeked.mean() > 0
    assert reward.updates == 1


def test_compute_without_sync_and_update_equal_compute_with_sync():
    one, other = small("db"), small("db")
    one.compute(rollout())
    other.compute(rollout(), sync=False)
    other.update(rollout())
    assert same_future(one, other)


def test_watch_step_by_step_equals_samples():
    one, other = small("e3b"), small("e3b")
    samples = rollout()
    for t in range(8):
        one.watch(**{name: value[t] for name, value in samples.items()})
    assert torch.equal(one.compute(), other.compute(samples))
    assert same_future(one, other)
    with pytest.raises(ssedb.ConfigError, match="nothing was watched"):
        one.compute()


def test_watch_copies_what_the_environments_write_to_again():
    reward = small(CLOCK, reward_scale="none")
    samples = rollout()
    step = {name: value[0].copy() for name, value in samples.items()}
    reward.watch(**step)
    for value in step.values():
        value[:] = 0
    assert reward.compute()[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("save", ["state_dict", "pickle"])
@pytest.mark.parametrize("bonus", ["db", "e3b"])
def test_saved_reward_goes_on_as_the_original(bonus, save):
    one = small(bonus)
    one.compute(rollout())
    if save == "pickle":
        other = pickle.loads(pickle.dumps(one))
    else:
        other = small(bonus, seed=1)
        other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert other.updates == 1
    assert same_future(one, other)


def saved_by(bonus: str = "rnd", **settings) -> dict:
    return small(bonus, **settings).state_dict()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (saved_by("db"), "a state of bonus='db' does not fit this reward of bonus='rnd'"),
        (saved_by(feature_dim=8), "feature_dim=8 .* feature_dim=64"),
        (saved_by(preset="small"), "preset='small' .* preset='rooms'"),
        (saved_by(reward_scale="run"), "reward_scale='run' .* reward_scale='recent'"),
        (
            ssedb.IntrinsicReward("rnd", (spaces.Box(-1, 1, (4,)), SPACES[1])).state_dict(),
            r"observations=\(4,\) .* observations=\(1, 36, 36\)",
        ),
        (
            ssedb.IntrinsicReward("rnd", (SPACES[0], spaces.Discrete(5))).state_dict(),
            r"actions=Discrete\(5\) .* actions=Discrete\(3\)",
        ),
        ({**saved_by(), "bonus": {}}, "the state does not fit this reward"),
        ({"weight": torch.zeros(1)}, "no state of an IntrinsicReward"),
    ],
)
def test_load_state_dict_of_another_reward_is_answered_in_one_line(state, message):
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        small().load_state_dict(state)
    assert "\n" not in str(error.value)


def test_load_state_dict_keeps_how_this_reward_is_trained():
    """Adam's first step on a slope of 2 is rate * 2 / (2 + epsilon)."""
    once = dict(epochs=1, batch_size=24, reward_scale="recent")
    reward = small(CLOCK, learning_rate=0.25, adam_eps=2.0, **once)
    reward.load_state_dict(small(CLOCK, fidelity="paper", learning_rate=0.5, **once).state_dict())
    reward.update(rollout())
    assert reward.bonus.weight.item() == pytest.approx(0.125)


def test_load_state_dict_drops_steps_watched_before():
    reward = small()
    saved = reward.state_dict()
    step = {name: value[0] for name, value in rollout(1).items()}
    reward.watch(**step)
    reward.load_state_dict(saved)
    reward.watch(**step)
    assert reward.compute().shape == (1, 3)


@pytest.mark.parametrize("bonus", ["e3b", "rnd"])
def test_loaded_reward_goes_on_with_another_number_of_environments_after_a_reset(bonus):
    envs = SyncVectorEnv([Corridor] * 2)
    reward = ssedb.IntrinsicReward(bonus, envs, preset="rooms", batch_size=8)
    before = small(bonus)
    before.compute(rollout(envs=3))
    reward.load_state_dict(before.state_dict())
    reward.begin_episodes()
    assert reward.compute(rollout(envs=2)).shape == (8, 2)


def test_reward_of_another_number_of_environments_that_begin_goes_on():
    envs = SyncVectorEnv([Corridor] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    reward = ssedb.IntrinsicReward("rnd", envs, preset="rooms", batch_size=8)
    reward.compute(rollout(envs=3))
    assert reward.compute(rollout(envs=2)).shape == (8, 2)


def test_reward_leaves_torchs_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    small("db").compute(rollout())
    assert torch.equal(torch.rand(1), expected)


def test_reward_follows_its_seed():
    first, second, third = small("db"), small("db"), small("db", seed=1)
    assert same_future(first, second)
    assert not torch.equal(weights(small("db")), weights(third))


def test_reward_draws_by_its_seed_whatever_its_weights():
    one, other = (small("db", seed=seed, epochs=1, batch_size=24) for seed in (0, 1))
    draws = other.state_dict()["engine"]
    other.load_state_dict({**one.state_dict(), "engine": draws})
    for reward in (one, other):
        reward.update(rollout())
    assert one.metrics["bonus_loss"] != pytest.approx(other.metrics["bonus_loss"], rel=1e-4)
    orders = []
    for seed in (0, 1):
        Clock.trained.clear()
        small(CLOCK, seed=seed).update(rollout())
        orders.append(torch.cat(Clock.trained).tolist())
    assert orders[0] != orders[1]


def test_fidelity_and_preset_make_the_networks():
    assert len(weights(small("db"))) < len(weights(small("db", preset="small")))
    assert len(weights(small("db"))) != len(weights(small("db", fidelity="released")))


def test_fit_obs_false_leaves_observations_as_they_are():
    reward = small(fit_obs=False)
    reward.compute(rollout())
    assert reward.bonus.normalize.std == 255
    assert (reward.bonus.normalize.mean == 0).all()


def test_share_is_what_a_pass_trains_on():
    small(CLOCK, epochs=1, share=0.25).update(rollout())
    assert len(torch.cat(Clock.trained)) == 6


def test_pairs_across_an_end_are_neither_rewarded_nor_trained_on():
    samples = rollout()
    obs = samples["observations"]
    samples["next_observations"][:-1] = obs[1:]  # what a buffer of observations alone can tell
    reward = small(CLOCK, reward_scale="none", epochs=1)
    rewards = reward.compute(samples)
    false = samples["terminateds"].copy()
    false[-1] = False
    assert false.sum() == 3
    assert (rewards.numpy()[false] == 0).all()
    assert 0 not in torch.cat(Clock.trained)
    assert len(torch.cat(Clock.trained)) == 24 - 3


def test_true_last_observations_are_rewarded_and_trained_on():
    reward = small(CLOCK, reward_scale="none", epochs=1)
    rewards = reward.compute(rollout()).numpy()
    assert (rewards[rollout()["terminateds"]] == LENGTH).all()
    assert torch.cat(Clock.trained).tolist().count(LENGTH) == 4


def test_invalid_steps_are_neither_rewarded_nor_trained_on():
    samples = rollout()
    samples["valid"] = np.arange(8)[:, None] >= np.array([0, 3, 8])
    rewards = small(CLOCK, reward_scale="none", epochs=1).compute(samples).numpy()
    assert ((rewards > 0) == samples["valid"]).all()
    assert len(torch.cat(Clock.trained)) == 8 + 5


@pytest.mark.parametrize("scale", ["run", "recent", "none"])
def test_rewards_are_scaled_as_in_our_trainer(scale):
    reward = small(CLOCK, reward_scale=scale, gamma=0.9)
    norm = RewardNorm(3, 0.9, recent=scale == "recent")
    for seed in range(3):
        samples = rollout(seed=seed)
        raw = torch.as_tensor(samples["next_observations"][..., 0, 0, 0]).float()
        expected = raw if scale == "none" else norm(raw)
        assert torch.allclose(reward.compute(samples), expected)


def test_fidelity_implies_the_reward_scale():
    ours, papers = small(CLOCK), small(CLOCK, fidelity="paper")
    recent, run = small(CLOCK, reward_scale="recent"), small(CLOCK, reward_scale="run")
    for seed in range(2):
        rewards = [r.compute(rollout(4 + 4 * seed)) for r in (ours, recent, papers, run)]
    assert torch.equal(rewards[0], rewards[1])
    assert torch.equal(rewards[2], rewards[3])
    assert not torch.allclose(rewards[0], rewards[2])


def test_first_samples_fix_the_observation_statistics():
    reward = small()
    samples = rollout()
    reward.compute(samples)
    frames = samples["observations"].reshape(24, 36, 36).astype(float)
    normalize = reward.bonus.normalize
    assert torch.allclose(normalize.mean[0, 0], torch.as_tensor(frames.mean(0)).float())
    assert normalize.std == pytest.approx(frames.std(0).mean())
    before = normalize.mean.clone()
    reward.compute(rollout(seed=1))
    assert torch.equal(normalize.mean, before)


def test_first_samples_that_are_all_alike_do_not_blow_up_what_comes_later():
    reward = small()
    samples = rollout()
    samples["observations"][:] = 7
    reward.compute(samples)
    assert reward.bonus.normalize.std == 1


def test_episodes_keep_their_numbers_from_rollout_to_rollout():
    reward = small(DIARY)
    samples = rollout(8)
    for part in (slice(0, 6), slice(6, 8)):
        reward.compute({name: value[part] for name, value in samples.items()})
    first, second = (e.view(-1, 3) if len(e) % 3 == 0 else e for e in Diary.episodes)
    numbers = torch.cat([first, second])
    expected = np.arange(3) + 3 * ((np.arange(8)[:, None] + np.arange(3)) // LENGTH)
    assert numbers.tolist() == expected.tolist()


def test_episodes_of_environments_that_were_reset_have_new_numbers():
    reward = small(DIARY)
    reward.compute(rollout(2))
    reward.begin_episodes()
    reward.compute(rollout(2))
    first, second = (set(episodes.tolist()) for episodes in Diary.episodes)
    assert not first & second


def test_reset_among_watched_steps_begins_new_episodes_of_those_environments():
    reward = small(DIARY)
    step = {name: value[0] for name, value in rollout(1).items()}
    for which in (None, [True, False, True], None, [False, False, False]):
        reward.watch(**step)
        reward.begin_episodes(which)
    reward.watch(**step)
    reward.compute()
    expected = [[0, 1, 2], [3, 4, 5], [6, 4, 8], [9, 7, 11], [9, 7, 11]]
    assert torch.cat(Diary.episodes).view(5, 3).tolist() == expected
    reward.begin_episodes([False, True, False])
    reward.compute(rollout(1))
    assert Diary.episodes[-1].tolist() == [9, 10, 11]


def test_episodes_that_end_in_forgotten_steps_are_over():
    reward = small(DIARY)
    reward.compute(rollout(1))
    for step in range(1, 4):  # environments 1 and 2 end, 0 does not
        reward.watch(**{name: value[step] for name, value in rollout(4).items()})
    reward.forget_watched()
    reward.compute(rollout(1))
    assert Diary.episodes[-1].tolist() == [0, 4, 5]


def test_step_after_a_reset_counts_though_the_episode_had_ended():
    """Gymnasium's default again: `reset` takes the place of the step that would reset."""
    envs = SyncVectorEnv([Corridor] * 2)
    reward = ssedb.IntrinsicReward(CLOCK, envs, preset="rooms", reward_scale="none")
    last = {name: value[4, :2] for name, value in rollout(5).items()}
    last["terminateds"] = np.ones(2, bool)
    first = {name: value[0, :2] for name, value in rollout(1).items()}
    reward.watch(**last)
    reward.begin_episodes([True, False])
    reward.watch(**first)
    assert (reward.compute()[1] > 0).tolist() == [True, False]


def test_other_number_of_environments_goes_on_with_a_bonus_that_knows_none():
    reward = small("rnd", reward_scale="run")
    reward.compute(rollout())
    assert reward.compute(rollout(envs=2), sync=False).shape == (8, 2)
    assert reward.compute(rollout(envs=2)).shape == (8, 2)


def test_nan_in_observations_is_named_before_anything_learns():
    vectors = (spaces.Box(-1, 1, (4,)), spaces.Discrete(2))
    samples = random_samples(*vectors)
    reward = ssedb.IntrinsicReward("db", vectors, preset="rooms", device="cpu")
    reward.compute(samples)
    before = weights(reward)
    samples["next_observations"] = samples["next_observations"].copy()
    samples["next_observations"][1, 0] = np.nan
    with pytest.raises(ssedb.ConfigError, match="next_observations with NaN"):
        reward.compute(samples)
    assert torch.equal(weights(reward), before)


@pytest.mark.parametrize("watched", [True, False])
def test_steps_that_only_reset_are_known_from_the_environments(watched):
    """Gymnasium's default: the step after an end resets, whatever the action."""
    envs = SyncVectorEnv([Corridor] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    reward = ssedb.IntrinsicReward(
        CLOCK, envs, preset="rooms", reward_scale="none", epochs=1, device="cpu"
    )
    obs, _ = envs.reset(seed=0)
    found = []
    for steps in (5, 4, 6):  # rollouts: the first ends with an episode, the others within one
        rows = []
        for _ in range(steps):
            next_obs, rewards, ended, cut, _ = envs.step(np.zeros(2, int))
            rows.append((obs, np.zeros(2, int), rewards, ended, cut, next_obs))
            obs = next_obs.copy()
        if watched:
            for row in rows:
                reward.watch(*row)
        columns = map(np.stack, zip(*rows, strict=True))
        samples = None if watched else dict(zip(rollout(), columns, strict=True))
        found += reward.compute(samples)[:, 0].tolist()
    assert found == ([1, 2, 3, 4, 5, 0] * 3)[:15]
    trained = torch.cat(Clock.trained).tolist()
    assert trained.count(LENGTH) == 2 * 2
    assert 0 not in trained


def test_update_trains_the_model():
    reward = small("rnd", epochs=8, learning_rate=1e-3, reward_scale="none")
    first = reward.compute(rollout())
    losses = []
    for _ in range(4):
        last = reward.compute(rollout())
        losses.append(reward.metrics["bonus_loss"])
    assert last.mean() < 0.5 * first.mean()
    assert losses[-1] < losses[0]


def test_epochs_and_batch_size_say_how_often_the_model_is_trained():
    small(CLOCK, epochs=3, batch_size=7).compute(rollout())
    assert [len(times) for times in Clock.trained] == 3 * [6, 6, 6, 6]


def test_actions_of_a_space_that_starts_elsewhere_count_from_0():
    space = SPACES[0], spaces.Discrete(3, start=5)
    samples = rollout()
    expected = samples["actions"].copy()
    samples["actions"] = samples["actions"][..., None].astype(np.float32) + 5
    ssedb.IntrinsicReward(CLOCK, space, preset="rooms").compute(samples)
    given = torch.cat([actions for _, actions, _ in Clock.rewarded])
    assert given.tolist() == expected.flatten().tolist()


def test_environments_tell_their_spaces():
    env = SyncVectorEnv([Corridor, Corridor])
    assert ssedb.IntrinsicReward("rnd", env, preset="rooms").spaces == SPACES
    assert ssedb.IntrinsicReward("rnd", Corridor(), preset="rooms").spaces == SPACES


@pytest.mark.parametrize(
    ("shape", "rgb", "expected"),
    [
        ((84, 84), None, (1, 84, 84)),
        ((40, 50, 1), None, (1, 40, 50)),
        ((84, 84, 4), None, (4, 84, 84)),
        ((4, 84, 84), None, (4, 84, 84)),
        ((60, 60, 3), None, (1, 60, 60)),
        ((60, 60, 3), False, (3, 60, 60)),
        ((12, 60, 60), None, (4, 60, 60)),
        ((7, 7, 3), None, (147,)),  # codes of a grid
        ((33, 33, 3), None, (1, 84, 84)),
        ((210, 160, 3), None, (1, 84, 84)),
    ],
)
def test_images_become_stacks_of_gray_frames(shape, rgb, expected):
    observations = make_observations(spaces.Box(0, 255, shape, np.uint8), rgb)
    assert observations.shape == expected
    white = torch.full((2, 3, *shape), 255.0)
    assert observations(white).shape == (2, 3, *expected)
    assert (observations(white) == 255).all()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (0, 255)])
def test_images_of_floats_become_bytes(low, high):
    observations = make_observations(spaces.Box(low, high, (4, 40, 40), np.float32))
    middle = low + 0.25 * (high - low)
    image = torch.tensor([low, middle, high, high]).float()[:, None, None].expand(1, 4, 40, 40)
    found = observations(image)[0, :, 0, 0]
    assert found.dtype == torch.uint8
    assert found.tolist() == pytest.approx([0, 64, 255, 255], abs=1)


def test_colours_become_gray_frame_by_frame():
    image = torch.zeros(1, 40, 40, 6, dtype=torch.uint8)
    image[..., 1], image[..., 5] = 100, 100  # green in the first frame, blue in the second
    gray = make_observations(spaces.Box(0, 255, (40, 40, 6), np.uint8))(image)
    assert gray[0, :, 0, 0].tolist() == [58, 11]


VECTORS = spaces.Box(-2, 2, (5,), np.float32)
OBSERVATIONS = {
    "vectors": (VECTORS, (5,)),
    "stacks of vectors": (spaces.Box(-2, 2, (2, 5), np.float64), (10,)),
    "bytes": (spaces.Box(0, 9, (5,), np.uint8), (5,)),
    "numbers": (spaces.Discrete(4, start=2), (4,)),
    "bits": (spaces.MultiBinary(6), (6,)),
}
ACTIONS = {
    "one choice": spaces.Discrete(3),
    "choices": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "bits": spaces.MultiBinary(2),
    "continuous": spaces.Box(-1, 1, (2,), np.float32),
}


def random_samples(observations: spaces.Space, actions: spaces.Space) -> dict[str, np.ndarray]:
    """Samples [4, 3, ...] drawn from spaces."""
    observations.seed(0)
    actions.seed(0)

    def draw(space: spaces.Space) -> np.ndarray:
        return np.array([[space.sample() for _ in range(3)] for _ in range(4)])

    nothing = np.zeros((4, 3), bool)
    return {
        "observations": draw(observations),
        "actions": draw(actions),
        "terminateds": nothing,
        "truncateds": nothing,
        "next_observations": draw(observations),
    }


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_vectors_of_every_kind_are_rewarded(kind):
    space, shape = OBSERVATIONS[kind]
    reward = ssedb.IntrinsicReward("db", (space, ACTIONS["one choice"]), preset="rooms")
    for _ in range(2):
        rewards = reward.compute(random_samples(space, ACTIONS["one choice"]))
        assert rewards.shape == (4, 3)
        assert rewards.std() > 0
    assert reward.bonus.normalize.mean.shape == (1, *shape)


@pytest.mark.parametrize("bonus", ["db", "icm", "e3b"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_of_every_kind_are_rewarded(kind, bonus):
    space = ACTIONS[kind]
    reward = ssedb.IntrinsicReward(bonus, (VECTORS, space), preset="rooms")
    samples = random_samples(VECTORS, space)
    rewards = [reward.compute(samples) for _ in range(2)]
    assert rewards[0].shape == (4, 3)
    assert not torch.equal(*rewards)


def test_choices_of_a_space_that_starts_elsewhere_count_from_0():
    space = spaces.MultiDiscrete([3, 2], start=[1, 0])
    Clock.rewarded.clear()
    samples = rollout()
    samples["actions"] = np.stack([samples["actions"] + 1, samples["actions"] % 2], -1)
    ssedb.IntrinsicReward(CLOCK, (SPACES[0], space), preset="rooms").compute(samples)
    given = torch.cat([actions for _, actions, _ in Clock.rewarded])
    assert given.amin(0).tolist() == [0, 0]
    assert given.amax(0).tolist() == [2, 1]


def test_every_dimension_of_vectors_has_its_own_scale():
    reward = ssedb.IntrinsicReward("rnd", (VECTORS, ACTIONS["one choice"]), preset="rooms")
    samples = random_samples(VECTORS, ACTIONS["one choice"])
    samples["observations"][..., 1] *= 100
    reward.compute(samples)
    flat = torch.as_tensor(samples["observations"]).flatten(0, 1)
    assert torch.allclose(reward.bonus.normalize.std, flat.std(0, correction=0), rtol=1e-4)


def test_watch_of_a_single_environment_is_answered_in_one_line():
    step = {name: value[0, 0] for name, value in rollout(1).items()}
    with pytest.raises(ssedb.ConfigError, match=r"terminateds of shape \[\]: watch takes"):
        small().watch(**step)


def without(key: str) -> dict[str, np.ndarray]:
    return {name: value for name, value in rollout().items() if name != key}


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (without("actions"), "samples without 'actions'"),
        ({**rollout(), "terminateds": np.zeros(3)}, r"terminateds of shape \[3\]"),
        ({**rollout(), "observations": np.zeros((8, 3, 9, 9, 1))}, "observations of shape"),
        ({**rollout(), "actions": np.zeros((8, 3, 2))}, "actions of shape"),
        ({**rollout(), "actions": rollout()["actions"].T}, r"actions of shape \[3, 8\]"),
        ({**rollout(), "actions": rollout()["actions"] + 5}, r"action \d: Discrete\(3\) has no"),
        ({**rollout(), "observations": rollout(9)["observations"]}, "observations of shape"),
        (
            {**rollout(), "next_observations": rollout(envs=2)["observations"]},
            "next_obs.* of shape",
        ),
        ({**rollout(), "truncateds": np.zeros(3)}, "truncateds of shape"),
        ({**rollout(), "valid": np.ones((8, 1))}, "valid of shape"),
        ({**rollout(), "masks": np.ones((8, 3))}, "samples with 'masks'"),
        ({name: value[:0] for name, value in rollout().items()}, r"terminateds of shape \[0, 3\]"),
        (rollout(envs=2), "samples of 2 environments, after 3"),
    ],
)
def test_samples_that_do_not_fit_are_answered_in_one_line(samples, message):
    reward = small(DIARY)
    reward.compute(rollout())
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        reward.compute(samples)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_scale": "best"}, "reward_scale='best'"),
        ({"bonus": "nope"}, "bonus='nope'"),
        ({"bonus": "count", "counted": "states"}, "counts true states"),
        ({"envs": 3}, "envs=3"),
        ({"envs": (spaces.Dict({"a": SPACES[0]}), SPACES[1])}, "observations of Dict"),
        ({"envs": (spaces.Box(-np.inf, 1, (40, 40, 3)), SPACES[1])}, "images or vectors"),
        ({"envs": (SPACES[0], spaces.Text(3))}, "actions are Text"),
        ({"share": 0.0}, "share=0.0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"gamma": 2.0}, "gamma=2.0"),
        ({"seed": -1}, "seed=-1"),
        ({"device": "tpu"}, "device='?tpu"),
        ({"precision": "fp8"}, "precision='?fp8"),
        ({"fidelity": "theirs"}, "fidelity='theirs'"),
        ({"rgb": True}, "1 channels"),
        ({"no_such_option": 1}, "no setting 'no_such_option'"),
    ],
)
def test_settings_that_do_not_fit_are_answered_in_one_line(settings, message):
    settings = {"bonus": "rnd", "envs": SPACES, "preset": "rooms", **settings}
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        ssedb.IntrinsicReward(**settings)
    assert "\n" not in str(error.value)
