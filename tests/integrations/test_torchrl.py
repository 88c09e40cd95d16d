"""TorchRL: the transform writes the rewards of true transitions, the loss trains the model."""

import copy
import sys
from importlib import import_module

import gymnasium
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.envs import (
    Compose,
    GymWrapper,
    RenameTransform,
    SerialEnv,
    ToTensorImage,
    TransformedEnv,
    check_env_specs,
)

import ssedb
from ssedb.integrations.torchrl import IntrinsicRewardLoss, IntrinsicRewardTransform

from .corridor import CLOCK, DIARY, LENGTH, Clock, Corridor, Diary, Sighted, picture, rollout, small

pytestmark = pytest.mark.usefixtures("short_window")


def corridor(one_hot: bool = True) -> GymWrapper:
    return GymWrapper(Corridor(), categorical_action_encoding=not one_hot)


def transformed(env=None, bonus: str = CLOCK, **settings) -> TransformedEnv:
    own = dict(scale_every=2) | settings
    reward = small(bonus, reward_scale="none")
    return TransformedEnv(env or corridor(), IntrinsicRewardTransform(reward, **own))


def collect(env: TransformedEnv, frames: int = 9):
    collector = Collector(env, frames_per_batch=frames, total_frames=frames)
    try:
        return next(iter(collector))
    finally:
        collector.shutdown(close_env=False)


def test_transform_keeps_the_specs_of_torchrl():
    check_env_specs(transformed(), seed=0)
    check_env_specs(transformed(add_to_reward=True), seed=0)


@pytest.mark.parametrize("one_hot", [True, False])
def test_transform_rewards_true_transitions_after_the_first_steps(one_hot):
    env = transformed(corridor(one_hot))
    data = collect(env)
    times = [1, 2, 3, 4, 5, 1, 2, 3, 4]
    assert data["next", "intrinsic_reward"].flatten().tolist() == [0, 0, *times[2:]]
    assert data["next", "reward"].flatten().tolist() == [float(t == LENGTH) for t in times]
    before, actions, later = map(torch.cat, zip(*Clock.rewarded, strict=True))
    assert torch.equal(later, before + 1)
    taken = data["action"].long().argmax(-1) if one_hot else data["action"].long()
    assert actions[-7:].tolist() == taken.flatten()[-7:].tolist()


def test_transform_adds_to_the_reward_with_both_weights():
    data = collect(transformed(add_to_reward=True, intrinsic_coef=2.0, extrinsic_coef=0.5))
    times = torch.tensor([0, 0, 3, 4, 5, 1, 2, 3, 4])
    expected = 2.0 * times + 0.5 * (torch.tensor([1, 2, 3, 4, 5, 1, 2, 3, 4]) == LENGTH)
    assert data["next", "reward"].flatten().tolist() == expected.tolist()


def test_transform_reads_and_writes_the_keys_of_its_arguments():
    reward = small(CLOCK, reward_scale="none")
    own = IntrinsicRewardTransform(reward, ["seen"], ["novelty"], scale_every=3)
    env = TransformedEnv(corridor(), Compose(RenameTransform(["observation"], ["seen"]), own))
    assert env.rollout(5)["next", "novelty"].flatten().tolist() == [0, 0, 0, 4, 5]
    assert reward.updates == 0  # the loss trains, not the transform
    with pytest.raises(KeyError, match="move"):
        transformed(action_key="move").rollout(1)


class Late(Corridor):
    """A corridor whose episodes begin at time 2."""

    def reset(self, **settings):
        super().reset(**settings)
        self.time = 2
        return picture(2), {}


def test_transform_gives_each_environment_of_a_batch_its_own_reward():
    envs = [corridor, lambda: GymWrapper(Late(), categorical_action_encoding=False)]
    data = collect(transformed(SerialEnv(2, envs)), frames=12)
    assert data["next", "intrinsic_reward"].shape == (2, 6, 1)
    assert data["next", "intrinsic_reward"][:, 2:, 0].tolist() == [[3, 4, 5, 1], [5, 3, 4, 5]]


def test_state_dict_of_the_transform_continues_as_the_original():
    def make() -> TransformedEnv:
        reward = small("rnd", seed=len(made))
        return TransformedEnv(corridor(), IntrinsicRewardTransform(reward, scale_every=2))

    made: list[TransformedEnv] = []
    made.append(make())
    collect(made[0])
    made.append(make())
    made[1].load_state_dict(made[0].state_dict())
    one, other = (env.transform.reward for env in made)
    samples = rollout(envs=1)
    raw = [
        reward.scale.divide(reward.raw_rewards(reward.samples(samples))) for reward in (one, other)
    ]
    assert torch.equal(*raw)
    assert raw[0].mean() > 0


def test_state_dict_of_another_bonus_is_answered_in_one_line():
    with pytest.raises(ssedb.ConfigError, match=r"bonus='rnd' does not fit .*bonus='db'"):
        transformed(bonus="db").load_state_dict(transformed(bonus="rnd").state_dict())


@pytest.mark.parametrize("scale_every", [1, 8])
def test_resets_within_a_collection_begin_new_episodes(scale_every):
    env = transformed(bonus=DIARY, scale_every=scale_every)
    for _ in range(4):
        env.rollout(2)  # two of five steps, then another reset
    numbers = torch.cat(Diary.episodes).tolist()
    assert [len(set(numbers[i : i + 2])) for i in range(0, len(numbers), 2)] == [1] * 4
    assert len(set(numbers)) == 4


def test_resets_of_some_environments_begin_new_episodes_of_those():
    env = transformed(SerialEnv(2, corridor), bonus=DIARY, scale_every=1)
    data = env.rollout(1)
    which = torch.tensor([[True], [False]])
    start = env.reset(data[:, -1]["next"].exclude("reward").set("_reset", which))
    env.rollout(1, auto_reset=False, tensordict=start)
    first, second = Diary.episodes[0].tolist(), Diary.episodes[-1].tolist()
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_reset_of_some_environments_keeps_what_the_others_observed():
    env = transformed(SerialEnv(2, corridor), scale_every=1)
    env.rollout(2)
    which = torch.tensor([[True], [False]])
    start = env.reset(TensorDict({"_reset": which}, batch_size=[2]))
    env.rollout(1, auto_reset=False, tensordict=start)
    before, _, later = Clock.rewarded[-1]
    assert before.tolist() == [0, 2]
    assert later.tolist() == [1, 3]


def test_reset_ends_the_memory_of_an_episodic_bonus():
    """The first step of an episode, whatever came before it, is as new as that of any other."""
    env = transformed(bonus="e3b", scale_every=1)
    env.transform.reward.bonus.requires_grad_(False)
    env.rollout(1)
    first = []
    for _ in range(3):
        torch.manual_seed(0)
        first.append(env.rollout(1)["next", "intrinsic_reward"].item())
    assert first == pytest.approx([first[0]] * 3)
    assert first[0] > 0


@pytest.mark.parametrize("in_place", [True, False])
def test_transform_rewards_what_the_environment_gave_whatever_follows_it(in_place):
    keys = {} if in_place else {"out_keys": ["floats"]}
    env = transformed(SerialEnv(2, corridor))
    env.append_transform(ToTensorImage(in_keys=["observation"], **keys))
    data = collect(env, frames=24)
    assert (
        data["next", "intrinsic_reward"][:, 2:, 0].tolist() == [[3, 4, 5, 1, 2, 3, 4, 5, 1, 2]] * 2
    )
    before, _, later = map(torch.cat, zip(*Clock.rewarded, strict=True))
    assert torch.equal(later, before + 1)
    loss = IntrinsicRewardLoss(env.transform[0].reward)
    if in_place:
        with pytest.raises(ssedb.ConfigError, match="the space has 0 to 255"):
            loss(data)
    else:
        loss(data)


@pytest.mark.parametrize("bonus", ["db", "rnd"])
def test_loss_trains_the_model_that_the_transform_rewards_with(bonus):
    env = transformed(bonus=bonus)
    data = collect(env, 64)
    loss = IntrinsicRewardLoss(env.transform.reward)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    values, first = [], env.transform.reward.compute(rollout(envs=1), sync=False)
    for _ in range(20):
        value = loss(data.reshape(8, 8))["loss_bonus"]
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.after_step()
        values.append(value.item())
    assert values[-1] < values[0]
    assert not torch.equal(env.transform.reward.compute(rollout(envs=1), sync=False), first)


def test_loss_takes_the_batch_as_data_and_leaves_the_policy_alone():
    reward = ssedb.IntrinsicReward(
        "icm", (spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))), preset="rooms", device="cpu"
    )
    policy = torch.nn.Linear(3, 1)
    obs = torch.rand(8, 3)
    steps = {"observation": obs, "next": {"observation": obs}, "action": policy(obs).tanh()}
    batch, loss = TensorDict(steps, [8]), IntrinsicRewardLoss(reward)
    for _ in range(2):
        loss(batch)["loss_bonus"].backward()
    assert policy.weight.grad is None
    assert any(p.grad is not None for p in loss.parameters())


def same_weights(one, other) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_copies_of_environment_and_loss_have_one_model_each():
    env = transformed(bonus="rnd")
    loss = IntrinsicRewardLoss(env.transform.reward)
    twin, twins_loss = copy.deepcopy((env, loss))
    assert twin.transform.bonus is twin.transform.reward.bonus
    assert twins_loss.bonus is twin.transform.reward.bonus
    assert twin.transform.bonus is not env.transform.bonus
    with torch.no_grad():
        next(loss.parameters()).add_(1.0)
    assert not same_weights(twin.transform.reward.bonus, env.transform.reward.bonus)
    twin.load_state_dict(env.state_dict())
    assert same_weights(twin.transform.reward.bonus, env.transform.reward.bonus)


def test_loss_reads_the_keys_of_set_keys():
    data = collect(transformed()).rename_key_("action", "move")
    loss = IntrinsicRewardLoss(small(CLOCK))
    with pytest.raises(KeyError, match="action"):
        loss(data)
    loss.set_keys(action="move")
    assert loss(data)["loss_bonus"] == 1
    data.rename_key_("observation", "seen").rename_key_(("next", "observation"), ("next", "seen"))
    with pytest.raises(KeyError, match="observation"):
        loss(data)
    loss.set_keys(observation="seen", next_observation=("next", "seen"))
    assert loss(data)["loss_bonus"] == 1


def test_after_step_moves_momentum_copies():
    reward = small("db", tau=0.5)
    loss = IntrinsicRewardLoss(reward)
    before = copy.deepcopy(reward.bonus.state_dict())
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(0.1 * parameter.requires_grad)
    loss.after_step()
    fixed = [name for name in before if name.startswith(reward.bonus.fixed)]
    assert any(not torch.equal(before[n], reward.bonus.state_dict()[n]) for n in fixed)


def test_hooks_reach_the_bonus(monkeypatch):
    called = []
    monkeypatch.setattr(Clock, "after_epoch", lambda bonus: called.append("epoch"))
    monkeypatch.setattr(Clock, "after_rollout", lambda bonus: called.append("rollout"))
    loss = IntrinsicRewardLoss(small(CLOCK))
    loss.after_epoch()
    loss.after_rollout()
    assert called == ["epoch", "rollout"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IntrinsicRewardTransform("db"), "reward='db': give an ssedb.IntrinsicReward made"),
        (lambda: IntrinsicRewardLoss("db"), "reward='db': give an ssedb.IntrinsicReward made"),
        (lambda: IntrinsicRewardTransform(small(), scale_every=0), "scale_every=0: must be above"),
        (lambda: IntrinsicRewardTransform(small(), intrinsic_coef="1"), "intrinsic_coef='1': must"),
        (lambda: IntrinsicRewardTransform(small(), extrinsic_coef=None), "extrinsic_coef=None: "),
    ],
)
def test_arguments_that_do_not_fit_are_answered_in_one_line(make, message):
    with pytest.raises(ssedb.ConfigError, match=message):
        make()


def test_keys_that_do_not_fit_are_answered_in_one_line():
    with pytest.raises(ssedb.ConfigError, match="give one of each"):
        IntrinsicRewardTransform(small(), in_keys=["a", "b"])
    with pytest.raises(ssedb.ConfigError, match=r"in_keys=\['pixels'\]: the environment gives"):
        transformed(in_keys=["pixels"]).reset()


def test_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("ssedb.errors.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "ssedb.integrations.torchrl")
    with pytest.raises(ssedb.ConfigError, match=r"pip install 'ssedb\[torchrl\]'"):
        import_module("ssedb.integrations.torchrl")


class Numbers(gymnasium.Env):
    """Observations and actions that TorchRL turns into one-hot vectors."""

    observation_space, action_space = spaces.Discrete(4), spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return int(action[0]) + 1, 0.0, False, False, {}


def test_transform_and_loss_take_the_one_hot_choices_of_torchrl():
    game = Numbers()
    reward = ssedb.IntrinsicReward("icm", game, preset="rooms", device="cpu")
    env = TransformedEnv(GymWrapper(game), IntrinsicRewardTransform(reward, scale_every=4))
    data = env.rollout(8)
    assert data["observation"].shape == (8, 4)
    assert data["action"].shape == (8, 5)
    assert (data["next", "intrinsic_reward"][4:] > 0).any()
    assert IntrinsicRewardLoss(reward)(data)["loss_bonus"] > 0


def test_transform_takes_the_entry_of_a_dictionary_that_the_reward_sees():
    game = Sighted()
    reward = ssedb.IntrinsicReward(CLOCK, game, preset="rooms", reward_scale="none", device="cpu")
    transform = IntrinsicRewardTransform(reward, in_keys=["image"], scale_every=1)
    data = TransformedEnv(GymWrapper(game), transform).rollout(4)
    assert data["next", "intrinsic_reward"].flatten().tolist() == [0, 2, 3, 4]
