"""The plain collector: rollouts of what the policy saw and did."""

import pytest
import torch

import ssedb
from ssedb.collect.collector import Collector
from ssedb.engine.base import Engine
from tests.toy import Grid


def test_collect_stores_what_the_policy_saw_and_did():
    seen, idle, steps = [], [], []

    class Watched(Engine):
        def idle(self):
            idle.append(len(seen))

    def act(obs):
        seen.append(obs)
        n = len(seen)
        return torch.full((4,), n % 4), torch.full((4,), float(-n)), torch.full((4,), float(n))

    env = Grid(num_envs=4, episode=3)
    rollout = Collector(env, 8, Watched(env.device), steps.append).collect(act)
    assert len(seen) == 9  # one more for the last value
    for t in range(9):
        assert torch.equal(seen[t], rollout.obs(t))
        assert (rollout.values[t] == t + 1).all()
    assert rollout.actions[:, 0].tolist() == [1, 2, 3, 0, 1, 2, 3, 0]
    assert rollout.log_probs[:, 0].tolist() == [-1.0, -2, -3, -4, -5, -6, -7, -8]
    assert rollout.dones[:, 0].tolist() == [False, False, True] * 2 + [False, False]
    assert steps == list(range(8))
    assert idle == list(range(1, 9))  # once while the environments make each step


def still(obs):
    return torch.zeros(len(obs), dtype=torch.int64), torch.zeros(len(obs)), torch.zeros(len(obs))


def test_episode_numbers_continue_across_ends_and_rollouts():
    env = Grid(num_envs=3, episode=4)
    collector = Collector(env, 6)
    env.age = torch.tensor([0, 1, 2])  # they end at different times
    numbers = [collector.collect(still).episodes[:-1].clone() for _ in range(3)]
    for n, age in enumerate((0, 1, 2)):
        expected = [n + 3 * ((t + age) // 4) for t in range(18)]
        assert torch.cat(numbers)[:, n].tolist() == expected


def test_states_are_those_before_the_action():
    class Known(Grid):
        def true_states(self):
            return self.state[:, 0] * self.cells + self.state[:, 1]

    def act(obs):
        return torch.tensor([0, 1, 2]), torch.zeros(3), torch.zeros(3)

    collector = Collector(Known(num_envs=3, episode=4), 6)
    assert collector.rollout.states is None
    assert collector.keep_states()
    rollout = collector.collect(act)
    for t in range(6):
        newest = rollout.obs(t)[:, -1]
        row, column = newest.amax(2).argmax(1) // 6, newest.amax(1).argmax(1) // 6
        assert torch.equal(rollout.states[t], row * 6 + column)
    assert not Collector(Grid(num_envs=3), 6).keep_states()


@pytest.mark.parametrize("overlaps", [False, True])
def test_collector_when_restored_continues_the_episodes(overlaps):
    class Overlapping(Engine):
        pass

    Overlapping.overlaps = overlaps

    def collector(seed):
        env = Grid(num_envs=3, episode=7, seed=seed)
        return Collector(env, 5, Overlapping(env.device))

    def act(obs):
        return obs[:, -1].flatten(1).argmax(1) % 4, torch.zeros(3), torch.zeros(3)

    whole, again = collector(0), collector(1)
    whole.collect(act)
    again.load_state_dict(whole.state_dict())
    for _ in range(2):
        expected = whole.collect(act)
        actual = again.collect(act)
        for name in ("frames", "starts", "actions", "dones", "episodes"):
            assert torch.equal(getattr(actual, name), getattr(expected, name)), name


def test_collect_into_a_rollout_still_in_use_writes_elsewhere():
    class Overlapping(Engine):
        overlaps = True

    env = Grid(num_envs=3, episode=4)
    collector = Collector(env, 5, Overlapping(env.device))
    first = collector.collect(still)
    kept = first.frames.clone()
    second = collector.collect(still)
    assert torch.equal(first.frames, kept)
    assert torch.equal(second.obs(0), first.obs(5))
    assert collector.collect(still) is first


def test_checkpoint_of_new_episodes_that_nobody_has_stepped_keeps_their_numbers():
    class Forgetful(Grid):
        restorable = False

    first, *others = (Collector(Forgetful(num_envs=3, episode=4), 6) for _ in range(3))
    first.collect(still)
    states = [first.state_dict()]
    for again in others:
        again.load_state_dict(states[-1])
        states.append(again.state_dict())
    numbers = [state["rollout"]["episodes"].tolist() for state in states]
    assert numbers == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert others[-1].collect(still).episodes[0].tolist() == [9, 10, 11]


def test_checkpoint_of_two_processes_is_refused_by_one_if_counts_would_be_lost():
    collector = Collector(Grid(num_envs=3), 5)
    state = collector.state_dict()
    state["env_ranks"] = [state["env"]] * 2
    collector.load_state_dict(state)
    assert not collector.continued
    collector.env.must_continue = True
    with pytest.raises(ssedb.ConfigError, match="is of 2 processes, and here are 1; start as many"):
        collector.load_state_dict(state)
