"""RLeXplore's names: its constructor keywords, its samples, its (T, N) results."""

import inspect

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecTransposeImage

import ssedb
from ssedb.errors import Note
from ssedb.integrations import rlexplore
from ssedb.integrations.rlexplore import DB, E3B, ICM, RE3, RND, Disagreement

from .corridor import CLOCK, Clock, Corridor, rollout

COMMON = "envs device beta kappa gamma rwd_norm_type obs_norm_type"
MODEL = "latent_dim lr batch_size update_proportion encoder_model weight_init"
KEYWORDS = {
    "ICM": f"{COMMON} {MODEL}",
    "RND": f"{COMMON} {MODEL}",
    "DB": f"{COMMON} {MODEL}",
    "Disagreement": f"{COMMON} ensemble_size {MODEL}",
    "E3B": f"{COMMON} ridge {MODEL}",
    "RE3": f"{COMMON} latent_dim storage_size k average_entropy encoder_model weight_init",
}
"""What rllte-core 1.0.1 takes, in its order."""
ALL = [ICM, RND, Disagreement, RE3, DB, E3B]


@pytest.fixture
def envs():
    return SyncVectorEnv([Corridor] * 3, autoreset_mode=AutoresetMode.SAME_STEP)


def tensors(**changes) -> dict[str, torch.Tensor]:
    return {name: torch.as_tensor(value) for name, value in (rollout() | changes).items()}


@pytest.mark.parametrize("cls", ALL)
def test_constructor_takes_rlexplores_keywords_in_its_order(cls):
    parameters = list(inspect.signature(cls).parameters)
    assert parameters == KEYWORDS[cls.__name__].split()


@pytest.mark.parametrize("cls", [ICM, RND, Disagreement, RE3, E3B])
def test_constructor_has_the_defaults_of_the_installed_package(cls):
    theirs = pytest.importorskip("rllte.xplore.reward", reason="requirements/rivals.txt")
    own = inspect.signature(cls).parameters.values()
    others = inspect.signature(getattr(theirs, cls.__name__)).parameters.values()
    assert [(p.name, p.default) for p in own] == [(p.name, p.default) for p in others]


@pytest.mark.parametrize("cls", ALL)
def test_compute_gives_a_reward_for_every_step_of_every_environment(envs, cls):
    reward = cls(envs, latent_dim=8)
    for _ in range(2):
        rewards = reward.compute(samples=tensors(), sync=True)
        assert rewards.shape == (8, 3)
        assert rewards.isfinite().all()
    assert [step for step, _ in reward.metrics["loss"]] == [1, 2]
    reward.update(samples=tensors())
    assert len(reward.metrics["loss"]) == 3


class Clocks(rlexplore.Reward):
    """A reward whose bonus is the time of the next observation, or another."""

    def __init__(self, envs, bonus=CLOCK, **given):
        common = dict(device="cpu", beta=1.0, kappa=0.0, gamma=None, encoder_model="mnih")
        kinds = dict(rwd_norm_type="none", obs_norm_type="none", weight_init="orthogonal")
        super().__init__(bonus, {"envs": envs, **common, **kinds, **given})


TIMES = torch.as_tensor(rollout()["next_observations"][:, :, 0, 0, 0].astype(np.float32))


def test_samples_are_rewarded_before_they_are_counted(envs):
    assert (Clocks(envs, bonus="count").compute(tensors()) == 1).all()


def test_rms_divides_by_the_std_of_all_rewards_so_far(envs):
    reward = Clocks(envs, rwd_norm_type="rms")
    assert torch.allclose(reward.compute(tensors()), TIMES / TIMES.std(correction=0))
    half = {name: value[:4] for name, value in tensors().items()}
    both = torch.cat([TIMES, TIMES[:4]])
    assert torch.allclose(reward.compute(half), TIMES[:4] / both.std(correction=0))


def test_gamma_scales_by_discounted_sums_and_leaves_the_rewards_in_their_places(envs):
    sums = torch.zeros(8, 3)
    for t in range(8):
        sums[t] = 0.5 * (sums[t - 1] if t else 0) + TIMES[t]
    rewards = Clocks(envs, rwd_norm_type="rms", gamma=0.5).compute(tensors())
    assert torch.allclose(rewards, TIMES / sums.std(correction=0))


def test_minmax_is_between_0_and_1_and_alike_rewards_are_0(envs):
    reward = Clocks(envs, rwd_norm_type="minmax")
    assert torch.allclose(reward.compute(tensors()), (TIMES - 1) / 4)
    alike = tensors(next_observations=np.full((8, 3, 36, 36, 1), 7, np.uint8))
    assert (reward.compute(alike) == 0).all()


def test_weight_decays_with_every_call(envs):
    reward = Clocks(envs, beta=3.0, kappa=0.1)
    for step in (1, 2, 3):
        expected = 3 * 0.9**step
        assert torch.allclose(reward.compute(tensors(), sync=step != 2), expected * TIMES)
        assert reward.weight == pytest.approx(expected)
    assert reward.global_step == 3
    assert [step for step, _ in reward.metrics["loss"]] == [1, 3]


def test_watch_is_not_needed_and_the_environments_are_not_stepped(envs):
    envs.reset(seed=0)
    reward = RE3(envs, latent_dim=8)
    reward.compute(tensors())
    after = [env.time for env in envs.envs]
    assert after == [0, 0, 0]
    assert reward.watch(*tensors().values()) is None


def test_update_takes_a_batch_of_a_replay_buffer(envs):
    reward = ICM(envs, latent_dim=8)
    reward.compute(tensors(), sync=False)
    batch = {name: value.flatten(0, 1)[:, None] for name, value in tensors().items()}
    reward.update({**batch, "actions": batch["actions"][..., None].float()})
    assert reward.compute(tensors()).shape == (8, 3)


def test_update_proportion_trains_on_a_share(envs):
    Clock.trained.clear()
    reward = Clocks(envs, update_proportion=0.25, batch_size=4, lr=0.1)
    reward.update(tensors())
    assert [len(times) for times in Clock.trained] == [3, 3]
    assert reward.batch_size == 4


@pytest.mark.parametrize("cls", ALL)
def test_latent_dim_device_and_obs_norm_type_reach_the_bonus(envs, cls):
    reward = cls(envs, latent_dim=8, device="cpu", obs_norm_type="none").reward
    name = "latent_dim" if cls is DB else "feature_dim"
    expected = {name: 8, "device": "cpu", "fit_obs": False}
    assert {name: reward.settings[name] for name in expected} == expected
    assert cls(envs, obs_norm_type="rms").reward.settings["fit_obs"] is True


def test_keywords_reach_the_bonus(envs):
    assert Disagreement(envs, ensemble_size=3).reward.settings["models"] == 3
    assert RE3(envs, k=2, average_entropy=True).reward.bonus.options.distance == "mean"
    assert RE3(envs, k=2).reward.bonus.options.neighbours == 2
    assert E3B(envs, ridge=0.5, latent_dim=8).reward.bonus.ridge == 0.5
    assert ICM(envs, latent_dim=8, lr=0.5).reward._adam.param_groups[0]["lr"] == 0.5
    assert DB(envs, latent_dim=8).reward.settings["latent_dim"] == 8


def test_state_dict_continues_as_the_original(envs):
    one, other = ICM(envs, latent_dim=8, kappa=0.1), ICM(envs, latent_dim=8, kappa=0.1)
    one.compute(tensors())
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.compute(tensors()), other.compute(tensors()))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda envs: RND(envs, latent_dim=8).state_dict(), "bonus='rnd' does not fit .*'icm'"),
        (lambda envs: ICM(envs, latent_dim=4).state_dict(), "feature_dim=4 .* feature_dim=8"),
        (lambda envs: {}, "no state of an IntrinsicReward"),
    ],
)
def test_state_dict_of_another_reward_is_answered_in_one_line(envs, state, message):
    reward = ICM(envs, latent_dim=8)
    with pytest.raises(ssedb.ConfigError, match=message):
        reward.load_state_dict(state(envs))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rwd_norm_type": "best"}, "rwd_norm_type='best': use rms or minmax or none"),
        ({"obs_norm_type": "best"}, "obs_norm_type='best'"),
        ({"encoder_model": "espeholt"}, "encoder_model='espeholt': use mnih"),
        ({"latent_dim": 0}, "^latent_dim=0: must be above 0"),
        ({"lr": -1}, "^lr=-1: must be above 0"),
        ({"update_proportion": 0}, "^update_proportion=0: must be above 0"),
        ({"beta": "a"}, "^beta='a': must be a finite number"),
        ({"kappa": 2}, "^kappa=2: must be at most 1"),
    ],
)
def test_keywords_that_do_not_fit_are_answered_in_one_line(envs, given, message):
    with pytest.raises(ssedb.ConfigError, match=message):
        RND(envs, **given)


@pytest.mark.parametrize(
    ("cls", "given"), [(RND, {"weight_init": "default"}), (RE3, {"storage_size": 5})]
)
def test_keywords_without_effect_are_noted(envs, cls, given):
    with pytest.warns(Note, match="changes nothing here"):
        cls(envs, **given)


class OnPolicy(BaseCallback):
    """Calls as RLeXplore's example for Stable-Baselines3 makes them."""

    def __init__(self, irs):
        super().__init__()
        self.irs = irs

    def _on_step(self) -> bool:
        names = ("obs_tensor", "actions", "rewards", "dones", "dones", "new_obs")
        self.irs.watch(*(torch.as_tensor(self.locals[name]) for name in names))
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        obs = torch.as_tensor(buffer.observations)
        last = torch.as_tensor(self.locals["new_obs"])[None]
        starts = torch.as_tensor(buffer.episode_starts)
        self.rewards = self.irs.compute(
            samples=dict(
                observations=obs,
                actions=torch.as_tensor(buffer.actions),
                rewards=torch.as_tensor(buffer.rewards),
                terminateds=starts,
                truncateds=starts,
                next_observations=torch.cat([obs[1:], last]),
            ),
            sync=True,
        )
        buffer.advantages += self.rewards.cpu().numpy()
        buffer.returns += self.rewards.cpu().numpy()


@pytest.mark.parametrize("cls", ALL)
def test_calls_of_rlexplores_example_work_unchanged(cls):
    envs = VecTransposeImage(DummyVecEnv([Corridor] * 2))
    callback = OnPolicy(cls(envs, device="cpu", latent_dim=8))
    PPO("MlpPolicy", envs, n_steps=8, batch_size=16, n_epochs=1, device="cpu").learn(
        32, callback=callback
    )
    assert callback.rewards.shape == (8, 2)
    assert callback.irs.global_step == 2
