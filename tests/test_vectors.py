"""Training on vectors, with actions of every kind."""

import copy
import math

import pytest
import torch
from torch.distributions import Categorical, Normal

import ssedb
from ssedb import cli, ppo
from ssedb.actions import Box, Choices, action_space
from ssedb.collect.environments import random_agent_statistics
from ssedb.networks import ActorCritic
from ssedb.runs.alarms import UPDATES_UNDER_LIMIT, Watch
from ssedb.runs.loop import resume, train
from ssedb.runs.metrics import read_metrics
from ssedb.trainer import Trainer
from tests.toy import ToyEnv, tiny_config

BOX = Box((-1.0, 0.0), (1.0, 4.0))
SPACES = {"discrete": 3, "multi-discrete": Choices((3, 2)), "continuous": BOX}


class Target(ToyEnv):
    """Shows a point of the box in other units, a still dimension, and rewards nearness to it."""

    vectors = True

    def __init__(self, num_envs=8, seed=0, episode=9, num_actions=BOX):
        super().__init__(num_envs, seed, episode)
        self.num_actions = num_actions

    def draw(self):
        return torch.rand(self.num_envs, 2, generator=self.generator)

    def frames(self):
        still = torch.full((self.num_envs, 1), 7.0)
        return torch.cat([100 * self.state, still], 1)

    def act(self, actions):
        space = action_space(self.num_actions)
        acted = space.vector(actions)[:, :2]
        wanted = self.state * torch.tensor([2.0, 4.0]) - torch.tensor([1.0, 0.0])
        self.state = self.draw()
        return 1 - (acted - wanted).abs().mean(-1)


def config(out, **changes):
    settings = dict(env="Pendulum-v1", preset="rooms", bonus_options={}, bonus_epochs=1)
    return tiny_config(out, **settings | changes)


def equal(first, second):
    return all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("space", ["multi-discrete", "continuous"])
@pytest.mark.parametrize("bonus", ssedb.list_bonuses())
def test_bonus_on_vectors_trains_and_continues_bit_for_bit(tmp_path, bonus, space):
    def made(seed):
        env = Target(seed=seed, num_actions=SPACES[space])
        return Trainer(config(tmp_path, bonus=bonus, seed=seed, rollout_steps=16), env)

    whole = made(1)
    whole.iterate()
    state = copy.deepcopy(whole.state_dict())
    before = copy.deepcopy(whole.bonus.state_dict())
    expected = whole.iterate()
    again = made(5)
    again.load_state_dict(state)
    assert {**again.iterate(), "sps": 0} == {**expected, "sps": 0}
    assert equal(whole.policy.state_dict(), again.policy.state_dict())
    assert equal(whole.bonus.state_dict(), again.bonus.state_dict())
    if bonus not in ("none", "re3"):
        assert not equal(before, whole.bonus.state_dict())


def test_rollout_of_vectors_is_what_the_environment_showed_unstacked(tmp_path):
    trainer = Trainer(config(tmp_path), Target(8, seed=1, episode=5))
    twin = Target(8, seed=1, episode=5)
    shown = [twin.reset()]
    trainer.iterate()
    rollout = trainer.rollout
    assert rollout.obs_shape == (3,)
    assert rollout.actions.shape == (32, 8, 2)
    for t in range(32):
        step = twin.step(rollout.actions[t])
        shown.append(step.frames)
        assert torch.equal(rollout.rewards[t], step.rewards)
    for t in range(33):
        assert torch.equal(rollout.obs(t), shown[t])


@pytest.mark.parametrize("space", SPACES)
def test_log_probs_of_a_rollout_are_those_of_torch_distributions(tmp_path, space):
    trainer = Trainer(config(tmp_path), Target(num_actions=SPACES[space]))
    policy = copy.deepcopy(trainer.policy)
    rollout = trainer.collector.collect(trainer.policy.act)
    obs = torch.stack([rollout.obs(t) for t in range(32)]).flatten(0, 1)
    with torch.no_grad():
        outputs, values = policy(obs)
    actions = rollout.actions.flatten(0, 1)
    if space == "continuous":
        found = Normal(outputs[:, :2], outputs[:, 2:].exp()).log_prob(actions).sum(-1)
        assert (actions > 4).any()  # stored as it was drawn, beyond the bounds
    else:
        sizes = [3] if space == "discrete" else [3, 2]
        columns = [actions] if space == "discrete" else actions.unbind(-1)
        parts = zip(outputs.split(sizes, -1), columns, strict=True)
        found = sum(Categorical(logits=part).log_prob(choice) for part, choice in parts)
    torch.testing.assert_close(rollout.log_probs.flatten(), found)
    torch.testing.assert_close(rollout.values[:-1].flatten(), values)


def test_ppo_loss_of_a_box_is_that_of_plain_numbers():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(6, 4, generator=generator).double()
    values, advantages, returns = torch.randn(3, 6, generator=generator).double()
    actions = torch.randn(6, 2, generator=generator).double()
    old = torch.randn(6, generator=generator).double() - 3
    loss, metrics = ppo.ppo_loss(
        outputs, values, actions, old, advantages, returns, clip=0.2, entropy_coef=0.1, space=BOX
    )
    policy = value = entropy = std = 0.0
    for i in range(6):
        log_prob = 0.0
        for d in range(2):
            mean, log_std = float(outputs[i, d]), float(outputs[i, 2 + d])
            z = (float(actions[i, d]) - mean) / math.exp(log_std)
            log_prob += -z * z / 2 - log_std - math.log(math.sqrt(2 * math.pi))
            entropy += (math.log(2 * math.pi * math.e) / 2 + log_std) / 6
            std += math.exp(log_std) / 12
        ratio, advantage = math.exp(log_prob - float(old[i])), float(advantages[i])
        policy -= min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage) / 6
        value += (float(values[i]) - float(returns[i])) ** 2 / 12
    assert float(metrics["entropy"]) == pytest.approx(entropy)
    assert float(metrics["policy_std"]) == pytest.approx(std)
    assert float(loss) == pytest.approx(policy + value - 0.1 * entropy)


@pytest.mark.parametrize("space", SPACES)
def test_ppo_loss_can_be_traced_into_one_graph(space):
    space = action_space(SPACES[space])
    traced = torch.compile(ppo.ppo_loss, fullgraph=True, backend="eager")
    policy = ActorCritic((3,), space, (8, 8, 8), 32, ["relu"])
    outputs, values = (x.detach() for x in policy(torch.randn(6, 3)))
    given = (outputs, values, space.random(6, torch.Generator()), *torch.randn(3, 6))
    settings = dict(clip=0.2, entropy_coef=0.1, space=space)
    torch.testing.assert_close(traced(*given, **settings), ppo.ppo_loss(*given, **settings))


def test_gaussian_policy_begins_in_the_middle_of_its_box_and_as_wide():
    torch.manual_seed(0)
    policy = ActorCritic((3,), BOX, (8, 8, 8), 32, ["relu"])
    mean, log_std = policy(torch.randn(64, 3))[0].detach().chunk(2, -1)
    torch.testing.assert_close(mean, torch.tensor([0.0, 2.0]).expand(64, 2), atol=0.1, rtol=0)
    torch.testing.assert_close(log_std.exp(), torch.tensor([1.0, 2.0]).expand(64, 2))
    policy.make_uniform()
    mean = policy(torch.randn(64, 3))[0].detach().chunk(2, -1)[0]
    assert torch.equal(mean, torch.tensor([0.0, 2.0]).expand(64, 2))


@pytest.mark.parametrize("space", SPACES)
def test_policy_learns_from_vectors_which_action_is_rewarded(tmp_path, space):
    settings = dict(intrinsic_coef=0.0, extrinsic_coef=1.0, learning_rate=1e-2, bonus="none")
    env = Target(num_envs=16, num_actions=SPACES[space])
    sizes = dict(num_envs=16, minibatch_envs=8, gamma=0.0, ppo_epochs=4)
    trainer = Trainer(config(tmp_path, **settings, **sizes), env)
    trainer.fit_observations(random_agent_statistics(Target(8, seed=3), 500, 0))
    rewards = []
    for _ in range(25):
        trainer.iterate()
        rewards.append(float(trainer.rollout.rewards.mean()))
    assert sum(rewards[-3:]) / 3 > rewards[0] + 0.1


def test_scale_of_vectors_is_the_mean_and_std_of_each_dimension(tmp_path):
    mean, std = random_agent_statistics(Target(8, seed=3), 8000, 0)
    torch.testing.assert_close(mean, torch.tensor([50.0, 50, 7]), atol=2, rtol=0)
    torch.testing.assert_close(std, torch.tensor([100 / 12**0.5] * 2 + [0]), atol=2, rtol=0)
    trainer = Trainer(config(tmp_path), Target())
    trainer.fit_observations((mean, std))
    for module in (trainer.policy, trainer.bonus):
        seen = module.normalize(torch.tensor([[50.0 + 1000, 50, 8]]))
        torch.testing.assert_close(seen, torch.tensor([[10.0, 0, 1]]), atol=0.1, rtol=0)


def test_entropy_of_a_gaussian_policy_raises_no_alarm():
    rows = [
        {"steps": i, "entropy": -3.0, "explained_variance": 0.5, "policy_std": 0.1}
        for i in range(3 * UPDATES_UNDER_LIMIT)
    ]
    assert Watch(rows).alarms == []
    assert [
        a.metric for a in Watch([{**row, "explained_variance": -1} for row in rows]).alarms
    ] == ["explained_variance"]
    for row in rows:
        del row["policy_std"]
    assert [alarm.metric for alarm in Watch(rows).alarms] == ["entropy"]


def test_run_on_vectors_trains_resumes_evaluates_and_acts(tmp_path, capsys):
    settings = dict(env="Pendulum-v1", noise="tv-dims", obs_norm_steps=64, checkpoint_minutes=0)
    train(config(tmp_path / "run", steps=256, max_episode_steps=20, **settings))
    resume(tmp_path / "run", steps=512)
    rows = read_metrics(tmp_path / "run")
    assert len(rows) == 2
    assert all(row["policy_std"] > 0 for row in rows)
    assert len(ssedb.evaluate(tmp_path / "run", 3, device="cpu").scores) == 3
    agent = ssedb.load(tmp_path / "run", device="cpu")
    torch.manual_seed(0)
    actions = agent.act(torch.randn(200, 11))
    assert actions.shape == (200, 1)
    assert actions.abs().max() == 2  # within the bounds, which wide draws exceed
    assert agent.act(torch.randn(11), greedy=True).shape == (1,)
    with pytest.raises(ssedb.ConfigError, match=r"act takes float32 \[N, 11\] or \[11\]"):
        agent.act(torch.zeros(3))
    with pytest.raises(ssedb.ConfigError, match="observes vectors, which no video shows"):
        ssedb.evaluate(tmp_path / "run", 1, video=True, device="cpu")
    capsys.readouterr()
    for analysis in ("spikes", "probe", "tsne"):
        assert cli.main(["analyze", analysis, str(tmp_path / "run"), "--device", "cpu"]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert "observes vectors and takes other actions; `ssedb analyze` is for images" in said
