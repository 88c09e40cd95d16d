"""Stable-Baselines3: the bonus reaches the policy, with true transitions, and is saved."""

import sys
from contextlib import nullcontext
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize, VecTransposeImage

import ssedb
from ssedb.errors import Note
from ssedb.integrations.sb3 import IntrinsicRewardCallback, VecIntrinsicReward, last_values

from .corridor import (
    CLOCK,
    DIARY,
    LENGTH,
    Clock,
    Corridor,
    Diary,
    Sighted,
    picture,
    rollout,
    small,
)

pytestmark = pytest.mark.usefixtures("short_window")

STEPS, ENVS = 7, 2


def corridors(truncates: bool = False) -> DummyVecEnv:
    return DummyVecEnv([partial(Corridor, truncates)] * ENVS)


def ppo(env=None, **settings) -> PPO:
    sizes = dict(n_steps=STEPS, batch_size=7, n_epochs=2, policy_kwargs=dict(net_arch=[8]))
    return PPO("MlpPolicy", env or corridors(), seed=0, device="cpu", **sizes | settings)


def weights(model: PPO) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


def after(callback: IntrinsicRewardCallback | None, truncates: bool = False) -> PPO:
    """A model after two rollouts."""
    return ppo(corridors(truncates)).learn(2 * STEPS * ENVS, callback=callback)


def test_policy_update_depends_on_the_bonus_and_with_weight_0_is_plain_ppo():
    plain = weights(after(None))
    small_db = dict(preset="rooms", batch_size=8)
    zero = weights(after(IntrinsicRewardCallback("db", intrinsic_coef=0, **small_db)))
    large = weights(after(IntrinsicRewardCallback("db", intrinsic_coef=1000, **small_db)))
    assert torch.equal(zero, plain)
    assert not torch.allclose(large, zero, atol=1e-3)


def gae(rewards, values, starts, last_values, dones, gamma=0.99, lam=0.95):
    """Advantages by the definition, one environment and one step at a time."""
    advantages = np.zeros_like(rewards)
    for n in range(ENVS):
        for t in range(STEPS):
            weight = 1.0
            for k in range(t, STEPS):
                over = starts[k + 1, n] if k + 1 < STEPS else dones[n]
                after = values[k + 1, n] if k + 1 < STEPS else last_values[n]
                delta = rewards[k, n] + gamma * after * (1 - over) - values[k, n]
                advantages[t, n] += weight * delta
                if over:
                    break
                weight *= gamma * lam
    return advantages


class Rollouts(IntrinsicRewardCallback):
    """The callback, and a copy of the buffer before and after it."""

    def _on_rollout_end(self) -> None:
        buffer = self.locals["rollout_buffer"]
        self.before = buffer.rewards.copy()
        super()._on_rollout_end()
        names = ("rewards", "values", "episode_starts", "advantages", "returns")
        self.after = {name: getattr(buffer, name).copy() for name in names}
        self.last = self.locals["values"].numpy().flatten(), self.locals["dones"].copy()


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize(("intrinsic", "extrinsic"), [(1.0, 1.0), (0.5, 0.0)])
def test_returns_by_hand_equal_the_buffers(algorithm, intrinsic, extrinsic):
    callback = Rollouts(
        CLOCK, intrinsic_coef=intrinsic, extrinsic_coef=extrinsic, reward_scale="none"
    )
    model = algorithm("MlpPolicy", corridors(), n_steps=STEPS, seed=0, device="cpu", gamma=0.99)
    model.gae_lambda = model.rollout_buffer.gae_lambda = 0.95
    model.learn(STEPS * ENVS, callback=callback)
    time = np.arange(STEPS) % LENGTH + 1
    expected = (intrinsic * time + extrinsic * (time == LENGTH))[:, None].repeat(ENVS, 1)
    found = callback.after
    assert np.allclose(found["rewards"], expected)
    advantages = gae(found["rewards"], found["values"], found["episode_starts"], *callback.last)
    assert np.allclose(found["advantages"], advantages, atol=1e-5)
    assert np.allclose(found["returns"], advantages + found["values"], atol=1e-5)


def test_last_values_follow_from_the_last_advantages():
    rng = np.random.default_rng(0)
    buffer = RolloutBuffer(STEPS, *[spaces.Discrete(2)] * 2, gamma=0.99, n_envs=ENVS)
    buffer.rewards[:], buffer.values[:] = rng.random((2, STEPS, ENVS))
    last = torch.as_tensor(rng.random(ENVS))
    buffer.compute_returns_and_advantage(last, np.zeros(ENVS, bool))
    assert torch.allclose(last_values(buffer).double(), last, atol=1e-5)
    buffer.gamma = 0.0
    assert not last_values(buffer).any()


class Maskable(Corridor):
    """A corridor in which every action is allowed."""

    def action_masks(self):
        return np.ones(3, bool)


@pytest.mark.parametrize(
    ("algorithm", "policy"), [(RecurrentPPO, "MlpLstmPolicy"), (MaskablePPO, "MlpPolicy")]
)
def test_other_on_policy_algorithms_get_returns_of_the_bonus_too(algorithm, policy):
    def train(callback=None):
        sizes = dict(n_steps=STEPS, batch_size=7, n_epochs=1)
        env = DummyVecEnv([Maskable] * ENVS)
        return algorithm(policy, env, seed=0, device="cpu", **sizes).learn(STEPS * ENVS, callback)

    found = {}
    for weight in (0.0, 2.0):
        callback = Rollouts(CLOCK, reward_scale="none", intrinsic_coef=weight)
        model = train(callback)
        found[weight] = callback.after
        assert torch.equal(weights(model), weights(train())) == (weight == 0)
    added = found[2.0]["rewards"] - found[0.0]["rewards"]
    assert np.array_equal(added[:, 0], 2 * (np.arange(STEPS) % LENGTH + 1))
    starts, dones = found[2.0]["episode_starts"], callback.last[1]
    more = gae(added, np.zeros_like(added), starts, np.zeros(ENVS), dones)
    for name in ("advantages", "returns"):
        assert np.allclose(found[2.0][name] - found[0.0][name], more, atol=1e-4)


def test_extrinsic_coef_0_keeps_the_value_at_a_time_limit():
    callback = Rollouts(CLOCK, intrinsic_coef=0, extrinsic_coef=0)
    ppo(corridors(truncates=True)).learn(STEPS * ENVS, callback=callback)
    cut = np.arange(STEPS) % LENGTH == LENGTH - 1
    assert np.allclose(callback.after["rewards"][~cut], 0)
    assert np.allclose(callback.after["rewards"][cut], callback.before[cut] - 1, atol=1e-6)
    assert not np.allclose(callback.after["rewards"][cut], 0)


def test_episodes_of_the_callback_end_where_those_of_the_environments_do():
    after(IntrinsicRewardCallback(DIARY))
    steps = torch.cat(Diary.episodes).unique(return_counts=True)[1]
    assert sorted(steps.tolist()) == [4, 4, 5, 5, 5, 5]  # of 14 steps in each environment


@pytest.mark.parametrize("truncates", [False, True])
def test_transitions_at_episode_ends_have_the_true_next_observation(truncates):
    after(IntrinsicRewardCallback(CLOCK), truncates)
    before, _, later = map(torch.cat, zip(*Clock.rewarded, strict=True))
    assert len(before) == 2 * STEPS * ENVS
    assert torch.equal(later, before + 1)
    assert LENGTH in later


class Still(Corridor):
    """Episodes of one step in which nothing is to be seen."""

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return picture(1), {}

    def step(self, action):
        return picture(1), 0.0, True, False, {}


def test_ends_that_look_like_the_next_beginning_are_rewarded():
    ppo(DummyVecEnv([Still] * ENVS)).learn(STEPS * ENVS, IntrinsicRewardCallback(CLOCK))
    assert len(torch.cat([later for *_, later in Clock.rewarded])) == STEPS * ENVS


def test_images_in_a_cnn_policy_are_rewarded_channels_first():
    model = ppo(VecTransposeImage(corridors()), policy_kwargs={})
    model.learn(STEPS * ENVS, callback=IntrinsicRewardCallback(CLOCK))
    assert model.intrinsic_reward.inputs.spaces[0].shape == (1, 36, 36)
    assert torch.cat([later for *_, later in Clock.rewarded]).max() == LENGTH


def test_image_of_dictionary_observations_is_rewarded_with_the_true_last_ones():
    env = DummyVecEnv([Sighted] * ENVS)
    sizes = dict(n_steps=STEPS, batch_size=7, n_epochs=1, device="cpu")
    model = PPO("MultiInputPolicy", env, **sizes)
    model.learn(STEPS * ENVS, callback=IntrinsicRewardCallback(CLOCK))
    env = VecIntrinsicReward(env, CLOCK, update_every=3, preset="rooms", device="cpu")
    DQN("MultiInputPolicy", env, device="cpu", buffer_size=9, train_freq=1).learn(STEPS * ENVS)
    before, _, later = map(torch.cat, zip(*Clock.rewarded, strict=True))
    assert len(before) == 2 * STEPS * ENVS
    assert torch.equal(later, before + 1)
    assert later.tolist().count(LENGTH) == 2 * ENVS


def test_continuous_actions_are_rewarded_within_their_bounds():
    given = []

    class Look(IntrinsicRewardCallback):
        def _on_step(self) -> bool:
            given.append(self.locals["clipped_actions"])
            return super()._on_step()

    model = PPO("MlpPolicy", "Pendulum-v1", n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    model.learn(64, callback=Look("icm", preset="rooms", batch_size=16))
    assert model.intrinsic_reward.updates == 2
    assert np.abs(given).max() <= 2


def test_model_saves_the_bonus_and_a_loaded_one_continues_with_it(tmp_path):
    def callback(**settings):
        return IntrinsicRewardCallback("db", preset="rooms", batch_size=8, **settings)

    model = after(callback())
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=corridors(), device="cpu")
    reward = loaded.intrinsic_reward
    assert reward is not model.intrinsic_reward
    assert reward.updates == 2
    samples = rollout(envs=ENVS)
    for name in ("observations", "next_observations"):
        samples[name] = np.moveaxis(samples[name], -1, 2)  # as Stable-Baselines3 turns images
    expected = [model.intrinsic_reward.compute(samples) for _ in range(2)]
    assert torch.equal(torch.cat(expected), torch.cat([reward.compute(samples) for _ in range(2)]))
    loaded.learn(STEPS * ENVS, callback=callback())
    assert loaded.intrinsic_reward is reward
    assert reward.updates == 5
    with pytest.warns(Note, match="epochs is 1, the model's 3"):
        loaded.learn(STEPS * ENVS, callback=callback(epochs=1))
    assert loaded.intrinsic_reward is not reward


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ({}, {"feature_dim": 64}, None),
        ({"channels": [4, 4, 4]}, {"channels": (4, 4, 4)}, None),
        ({}, {"reward_scale": "recent"}, None),
        ({"feature_dim": 16}, {}, "feature_dim is 64, the model's 16"),
        ({}, {"fit_obs": False}, "fit_obs is False, the model's True"),
        ({}, {"reward_scale": "run"}, "reward_scale is 'run', the model's 'recent'"),
    ],
)
def test_callback_of_the_same_settings_continues_however_they_are_written(first, then, said):
    model = after(IntrinsicRewardCallback("rnd", preset="rooms", **first))
    reward = model.intrinsic_reward
    again = IntrinsicRewardCallback("rnd", preset="rooms", **then)
    with pytest.warns(Note, match=said) if said else nullcontext():
        model.learn(STEPS * ENVS, callback=again)
    assert (model.intrinsic_reward is reward) == (said is None)


def test_callback_takes_the_models_discount_and_logs_its_metrics():
    callback = IntrinsicRewardCallback("rnd", preset="rooms", verbose=2)
    model = ppo(gamma=0.9).learn(STEPS * ENVS, callback=callback, log_interval=9)
    assert callback.verbose == 2
    assert callback.reward.settings["gamma"] == 0.9
    assert callback.reward.settings["device"] == "cpu"  # the model's, not "auto"
    logged = model.logger.name_to_value
    assert logged["intrinsic/bonus"] == callback.reward.metrics["bonus"]


def test_callback_settings_come_before_the_models():
    callback = IntrinsicRewardCallback("rnd", preset="rooms", gamma=0.5)
    ppo(gamma=0.9).learn(STEPS * ENVS, callback=callback)
    assert callback.reward.settings["gamma"] == 0.5


def test_callback_continues_with_a_reward_that_is_made_already():
    reward = small()
    after(IntrinsicRewardCallback(reward))
    assert reward.updates == 2
    with pytest.raises(ssedb.ConfigError, match="epochs: give it to the IntrinsicReward"):
        IntrinsicRewardCallback(reward, epochs=3)


class Halt(BaseCallback):
    """A callback that stops training in the middle of the second rollout."""

    def _on_step(self) -> bool:
        return self.num_timesteps < (STEPS + 2) * ENVS


def episodes_of_a_second_call(*, stopped: bool, reset: bool) -> tuple[set[int], list[int]]:
    """The episodes that a first `learn` rewards, and those that a second one begins in."""
    model, bonus = ppo(), small(DIARY)
    halt = [Halt()] if stopped else []
    model.learn((1 + stopped) * STEPS * ENVS, callback=[*halt, IntrinsicRewardCallback(bonus)])
    first = {number for episodes in Diary.episodes for number in episodes.tolist()}
    Diary.episodes.clear()
    more = IntrinsicRewardCallback(bonus)
    model.learn(STEPS * ENVS, callback=more, reset_num_timesteps=reset)
    return first, torch.cat(Diary.episodes)[:ENVS].tolist()


@pytest.mark.parametrize("stopped", [False, True])
def test_learn_that_resets_begins_new_episodes(stopped):
    first, second = episodes_of_a_second_call(stopped=stopped, reset=True)
    assert not first & set(second)


def test_learn_that_continues_keeps_the_episodes_under_way():
    first, second = episodes_of_a_second_call(stopped=False, reset=False)
    assert set(second) <= first


def test_callback_of_an_algorithm_without_rollouts_names_the_wrapper():
    model = DQN("MlpPolicy", corridors(), device="cpu", buffer_size=10)
    with pytest.raises(ssedb.ConfigError, match=r"DQN has no rollout buffer; .*VecIntrinsicReward"):
        model.learn(4, callback=IntrinsicRewardCallback("rnd", preset="rooms"))


def wrapped(bonus: str = CLOCK, **settings) -> VecIntrinsicReward:
    return VecIntrinsicReward(
        corridors(), bonus, **{"update_every": 3, "preset": "rooms", "device": "cpu", **settings}
    )


def play(env: VecIntrinsicReward, steps: int) -> tuple[np.ndarray, list[list[dict]]]:
    rewards, infos = [], []
    env.reset()
    for t in range(steps):
        _, reward, _, info = env.step(np.full(ENVS, t % 3))
        rewards.append(reward)
        infos.append(info)
    return np.stack(rewards), infos


def test_wrapper_rewards_the_true_transitions_after_the_first_update():
    env = wrapped(reward_scale="none", intrinsic_coef=2.0)
    rewards, infos = play(env, 7)
    time = np.arange(7) % LENGTH + 1
    game, own = (time == LENGTH).astype(float), np.where(np.arange(7) < 3, 0, time)
    assert np.allclose(rewards, (game + 2 * own)[:, None])
    assert [row[1]["intrinsic_reward"] for row in infos] == own.tolist()
    assert [row[1]["extrinsic_reward"] for row in infos] == game.tolist()
    before, _, later = map(torch.cat, zip(*Clock.rewarded, strict=True))
    assert torch.equal(later, before + 1)
    assert env.reward.updates == 2


def test_wrapper_scales_by_the_steps_before_the_last_update():
    env = wrapped(reward_scale="run", gamma=0.0, extrinsic_coef=0.0)
    rewards, _ = play(env, 8)
    assert np.allclose(rewards[:3], 0)
    first = np.std([1, 2, 3])
    assert np.allclose(rewards[3:6, 0], np.array([4, 5, 1]) / first)
    assert np.allclose(rewards[6:, 0], np.array([2, 3]) / np.std([1, 2, 3, 4, 5, 1]))


def test_wrapper_without_training_gives_the_games_rewards():
    env = wrapped(training=False)
    assert play(env, 5)[0][:, 0].tolist() == [0, 0, 0, 0, 1]
    assert env.reward.updates == 0


def test_wrapper_without_training_numbers_the_episodes_that_end():
    env = VecIntrinsicReward(corridors(), DIARY, update_every=1)
    env.reset()
    for t in range(2 * LENGTH):
        env.training = t < 2 or t > LENGTH  # not when the first episodes end
        env.step(np.zeros(ENVS, int))
    assert [episodes[0].item() for episodes in Diary.episodes[:2]] == [0, 0]
    assert [episodes[0].item() for episodes in Diary.episodes[2:]] == [ENVS] * (LENGTH - 1)


@pytest.mark.parametrize("bonus", ["e3b", "db-ngu"])
def test_evaluation_with_the_reward_of_training_changes_no_training_episode(bonus):
    found = []
    for evaluates in (False, True):
        env = VecIntrinsicReward(corridors(), bonus, update_every=4, preset="rooms", device="cpu")
        rewards = play(env, 6)[0].tolist()
        if evaluates:
            other = VecIntrinsicReward(DummyVecEnv([Corridor]), env.reward, training=False)
            other.reset()
            for _ in range(LENGTH + 2):
                other.step(np.zeros(1, int))
        rewards += [env.step(np.zeros(ENVS, int))[1].tolist() for _ in range(6)]
        found.append(rewards)
    assert found[0] == found[1]


def test_evaluation_of_normalised_environments_takes_a_wrapper_that_does_not_train():
    def carts() -> DummyVecEnv:
        return make_vec_env("CartPole-v1", ENVS, seed=0)

    def evaluate(inside) -> float:
        env = VecNormalize(inside, training=False, norm_reward=False)
        check = EvalCallback(env, eval_freq=STEPS, n_eval_episodes=1, verbose=0)
        ppo(VecNormalize(bonus)).learn(STEPS * ENVS, callback=check)
        return check.last_mean_reward

    bonus = VecIntrinsicReward(carts(), "rnd", preset="rooms", device="cpu")
    assert evaluate(VecIntrinsicReward(carts(), bonus.reward, training=False)) >= 1
    with pytest.raises(AssertionError, match="synchronizing normalization stats"):
        evaluate(carts())


def test_wrapper_with_numbers_of_numpy_learns_and_is_saved(tmp_path):
    numbers = dict(intrinsic_coef=np.float64(0.5), learning_rate=np.float32(1e-3))
    whole = dict(batch_size=np.int64(4), epochs=np.int32(2), seed=np.int64(3), update_every=2)
    whole["channels"] = list(np.array([4, 4, 4]))
    env = VecIntrinsicReward(corridors(), "rnd", device="cpu", **numbers, **whole)
    env.extrinsic_coef = np.float32(0.25)
    play(env, 3)
    assert env.reward.updates == 1
    env.save(tmp_path / "bonus.pt")
    loaded = VecIntrinsicReward.load(tmp_path / "bonus.pt", corridors())
    assert loaded.intrinsic_coef == 0.5
    assert loaded.extrinsic_coef == 0.25
    assert loaded.reward.settings == env.reward.settings


def test_wrapper_saved_and_loaded_continues_as_the_original(tmp_path):
    env = wrapped("db", intrinsic_coef=0.5, extrinsic_coef=0.25, update_every=2, batch_size=4)
    play(env, 6)
    env.save(tmp_path / "bonus.pt")
    loaded = VecIntrinsicReward.load(tmp_path / "bonus.pt", corridors())
    assert loaded.intrinsic_coef == 0.5
    assert loaded.reward.updates == 3
    assert np.array_equal(play(loaded, 5)[0], play(env, 5)[0])
    assert loaded.reward.updates == 5
    env.training = False
    env.save(tmp_path / "bonus.pt")
    assert not VecIntrinsicReward.load(tmp_path / "bonus.pt", corridors()).training


@pytest.mark.parametrize("kind", ["other spaces", "other file", "damaged"])
def test_wrapper_of_a_file_that_does_not_fit_is_answered_in_one_line(tmp_path, kind):
    path = tmp_path / "bonus.pt"
    wrapped("rnd").save(path)
    venv = corridors()
    if kind == "other spaces":
        venv = make_vec_env("CartPole-v1")
    elif kind == "other file":
        VecNormalize(venv).save(path)
    else:
        path.write_bytes(path.read_bytes()[:1000])
    message = "observations=.* does not fit" if kind == "other spaces" else "no file of VecIntr"
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        VecIntrinsicReward.load(path, venv)
    assert "\n" not in str(error.value)


def test_wrapper_loaded_for_another_number_of_environments_continues(tmp_path):
    env = wrapped("e3b", batch_size=4)
    play(env, 6)
    env.save(tmp_path / "bonus.pt")
    loaded = VecIntrinsicReward.load(tmp_path / "bonus.pt", DummyVecEnv([Corridor] * 3))
    loaded.reset()
    assert loaded.step(np.zeros(3, int))[1].shape == (3,)


def test_wrapper_reset_before_the_first_update_begins_new_episodes():
    env = wrapped(DIARY)
    for _ in range(3):
        env.reset()
        env.step(np.zeros(ENVS, int))
    assert torch.cat(Diary.episodes).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"intrinsic_coef": np.nan}, "intrinsic_coef=nan: must be a finite number"),
        ({"extrinsic_coef": None}, "extrinsic_coef=None: must be a finite number"),
        ({"bonus": None}, "bonus=None: give the name of a bonus, or an ssedb.IntrinsicReward"),
    ],
)
def test_arguments_that_do_not_fit_are_answered_in_one_line(given, message):
    given = {"bonus": "rnd", **given}
    with pytest.raises(ssedb.ConfigError, match=message):
        IntrinsicRewardCallback(**given)
    with pytest.raises(ssedb.ConfigError, match=message):
        VecIntrinsicReward(corridors(), **given)


@pytest.mark.parametrize("number", [0, 1.5, "64", np.nan])
def test_update_every_that_is_no_number_of_steps_is_answered_in_one_line(number):
    with pytest.raises(ssedb.ConfigError, match="update_every="):
        VecIntrinsicReward(corridors(), "rnd", update_every=number)


def test_wrapper_of_a_single_environment_is_answered_in_one_line():
    with pytest.raises(ssedb.ConfigError, match="give a VecEnv"):
        VecIntrinsicReward(Corridor(), "rnd")


def test_wrapper_serves_an_off_policy_algorithm():
    env = wrapped("rnd", batch_size=4)
    DQN("MlpPolicy", env, device="cpu", buffer_size=50, learning_starts=4).learn(20)
    assert env.reward.updates == 4


def test_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("ssedb.errors.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "ssedb.integrations.sb3")
    with pytest.raises(ssedb.ConfigError, match=r"pip install 'ssedb\[sb3\]'"):
        import_module("ssedb.integrations.sb3")
