"""Frames kept once, stacks by indexing: the same observations as a queue of frames would make."""

import dataclasses
import threading
import time
from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from ssedb.envs.pools import Pools

from ssedb.collect.rollout import Player, Rollout, random_agent_statistics
from ssedb.engine import lasting
from ssedb.envs.base import Step
from ssedb.networks import ActorCritic
from ssedb.trainer import Trainer
from tests.toy import Grid, tiny_config

SHAPE = (3, 2)


@settings(max_examples=40, deadline=None)
@given(steps=st.integers(1, 9), rollouts=st.integers(1, 4), seed=st.integers(0, 1000))
def test_stacks_are_those_of_a_queue_that_each_episode_fills_with_its_first_frame(
    steps, rollouts, seed
):
    rng, envs = np.random.default_rng(seed), 3
    rollout = Rollout(steps, envs, SHAPE)
    frames = torch.from_numpy(rng.integers(0, 256, (envs, *SHAPE), dtype=np.uint8))
    rollout.begin(frames)
    queues = [deque([frames[n]] * 4, maxlen=4) for n in range(envs)]
    zeros = torch.zeros(envs)
    for _ in range(rollouts):
        expected = [[torch.stack(list(q)) for q in queues]]
        for t in range(steps):
            frames = torch.from_numpy(rng.integers(0, 256, (envs, *SHAPE), dtype=np.uint8))
            dones = torch.from_numpy(rng.random(envs) < 0.3)
            rollout.came(*rollout.at(t), frames, zeros, dones)
            for n, queue in enumerate(queues):
                queue.extend([frames[n]] * 4 if dones[n] else [frames[n]])
            expected.append([torch.stack(list(q)) for q in queues])
        for t in range(steps + 1):
            assert torch.equal(rollout.obs(t), torch.stack(expected[t]))
        times, n = rollout.indices(torch.tensor([2, 0]))
        for stack, t, env in zip(rollout.stacks(times + 1, n), times, n, strict=True):
            assert torch.equal(stack, expected[t + 1][env])
        rollout.go_on_from(rollout)


def test_a_paper_size_rollout_fits_in_150_megabytes():
    rollout = Rollout(128, 128, (84, 84))
    assert rollout.frames.shape == (132, 128, 84, 84)
    assert rollout.frames.nbytes < 150e6


def test_minibatches_are_whole_trajectories_and_cover_every_env_once():
    rollout = Rollout(5, 12, SHAPE)
    torch.manual_seed(0)
    batches = list(rollout.minibatches(4))
    assert [len(t) for t, _ in batches] == [20, 20, 20]
    for t, envs in batches:
        assert len(envs.unique()) == 4
        assert len({(int(a), int(b)) for a, b in zip(t, envs, strict=True)}) == 20
    assert sorted(torch.cat([e.unique() for _, e in batches]).tolist()) == list(range(12))


def test_collect_records_what_the_agent_saw_and_did():
    env = Grid(num_envs=4, episode=3)
    rollout = Rollout(8, 4, (36, 36))
    rollout.begin(env.reset())
    seen = []

    def act(obs):
        seen.append(obs)
        n = len(seen)
        return torch.full((4,), n % 4), torch.full((4,), float(-n)), torch.full((4,), float(n))

    Player(env, act).play(rollout)
    assert len(seen) == 9  # one more for the last value
    for t in range(9):
        assert torch.equal(seen[t], rollout.obs(t))
        assert (rollout.values[t] == t + 1).all()
    assert rollout.actions[:, 0].tolist() == [1, 2, 3, 0, 1, 2, 3, 0]
    assert rollout.dones[:, 0].tolist() == [False, False, True] * 2 + [False, False]


def test_random_agent_statistics_are_a_mean_picture_and_the_mean_of_stds():
    class Tape(Grid):
        """Keeps every frame it shows."""

        def frames(self):
            shown = super().frames()
            self.tape.append(shown)
            return shown

    env = Tape(num_envs=4, episode=1000)
    env.tape = []
    mean, std = random_agent_statistics(env, 200, seed=0)
    frames = torch.stack(env.tape).double()  # [51, 4, H, W]; no episode ended
    stacks = torch.stack(
        [frames[[max(t - 3 + k, 0) for k in range(4)]] for t in range(50)]
    )  # [50, 4 frames, N, H, W]
    samples = stacks.transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(mean.double(), samples.mean(0), rtol=1e-5, atol=1e-5)
    expected = samples.std(0, correction=0).mean()
    assert std.item() == np.float32(expected.item())


def test_a_world_that_never_changes_has_a_std_of_a_thousandth():
    class Still(Grid):
        def frames(self):
            return torch.full((self.num_envs, 36, 36), 7, dtype=torch.uint8)

    mean, std = random_agent_statistics(Still(num_envs=2), 20, seed=0)
    assert (mean == 7).all()
    assert std.item() == pytest.approx(1e-3)


@pytest.mark.parametrize("collect", ["random agent", "trainer"])
def test_first_episodes_are_staggered(collect):
    class Watched(Grid):
        staggered = 0

        def stagger(self):
            self.staggered += 1

    env = Watched(num_envs=8)
    if collect == "trainer":
        Trainer(tiny_config("unused"), env)
    else:
        random_agent_statistics(env, 16, seed=0)
    assert env.staggered == 1


@pytest.mark.parametrize("seed", range(3))
def test_random_agent_takes_every_action_equally_often_in_every_environment(seed):
    class Recorder(Grid):
        def act(self, actions):
            taken.append(actions)
            return super().act(actions)

    taken = []
    random_agent_statistics(Recorder(num_envs=4, seed=seed), 4 * 1000, seed)
    actions = torch.stack(taken)  # [1000, 4]
    counts = torch.stack(
        [(actions == action).sum(0) for action in range(4)]
    ).double()  # [actions, envs]
    # Beyond the bound of a chi-square with 4 times 3 degrees of freedom chance goes once in a million.
    assert ((counts - 250).square() / 250).sum() < chi2.isf(1e-6, 12)
    assert (actions[:, 0] != actions[:, 1]).any()


def test_episodes_are_numbered_across_their_ends_and_across_rollouts():
    env, rollout = Grid(num_envs=3, episode=4), Rollout(6, 3, (36, 36))
    env.reset()
    env.age = torch.tensor([0, 1, 2])  # they end at different times
    rollout.begin(env.frames())

    def act(obs):
        return torch.zeros(3, dtype=torch.int64), torch.zeros(3), torch.zeros(3)

    numbers = []
    for _ in range(3):
        Player(env, act).play(rollout)
        numbers += rollout.episodes[:-1].tolist()
        saved = rollout.state_dict()
        rollout.go_on_from(rollout)
    for n, age in enumerate((0, 1, 2)):
        expected = [n + 3 * ((t + age) // 4) for t in range(18)]
        assert [row[n] for row in numbers] == expected
    again = Rollout(6, 3, (36, 36))
    again.load_state_dict(saved)
    again.go_on_from(again)
    assert torch.equal(again.episodes[0], rollout.episodes[0])


def test_states_are_those_acted_in():
    class Known(Grid):
        def true_states(self):
            return self.state[:, 0] * self.cells + self.state[:, 1]

    env, rollout = Known(num_envs=3, episode=4), Rollout(6, 3, (36, 36))
    rollout.begin(env.reset())
    rollout.states = torch.zeros_like(rollout.actions)
    Player(env, lambda obs: (torch.tensor([0, 1, 2]), torch.zeros(3), torch.zeros(3))).play(rollout)
    for t in range(6):
        newest = rollout.obs(t)[:, -1]
        row, column = newest.amax(2).argmax(1) // 6, newest.amax(1).argmax(1) // 6
        assert torch.equal(rollout.states[t], row * 6 + column)


class Late(Grid):
    """Answers after a while."""

    def __init__(self, *args, seed, haste, **kwargs):
        super().__init__(*args, seed=seed, **kwargs)
        self.delays, self.order = np.random.default_rng((seed, haste)).uniform(0, 0.004, 100), []

    def send(self, actions, then):
        super().send(actions)
        threading.Timer(self.delays[len(self.order)], then).start()

    def recv(self):
        self.order.append(time.perf_counter())
        return super().recv()


def test_no_number_depends_on_which_part_answers_first():
    torch.manual_seed(0)
    policy = ActorCritic((4, 36, 36), 4, (4, 4, 4), 8, ["relu"])
    rollouts, orders = [], []
    for haste in (0, 1):
        parts = [Late(num_envs=2, seed=seed, haste=haste, episode=5) for seed in (1, 2, 3)]
        rollout = Rollout(12, 6, (36, 36))
        rollout.begin(Pools(parts).reset())
        torch.manual_seed(1)
        steps = []
        Player(Pools(parts), policy.act, split=True).play(rollout, steps.append)
        assert steps == list(range(12))
        rollouts.append(rollout)
        orders.append(sorted((moment, i) for i, part in enumerate(parts) for moment in part.order))
    assert [i for _, i in orders[0]] != [i for _, i in orders[1]]
    for name in (
        "frames",
        "starts",
        "actions",
        "rewards",
        "dones",
        "log_probs",
        "values",
        "episodes",
    ):
        assert torch.equal(getattr(rollouts[0], name), getattr(rollouts[1], name)), name
    assert len(rollouts[0].actions.unique()) == 4


class Same(Grid):
    """Answers in the same place each time, as emulators do beside a GPU."""

    def recv(self):
        step = super().recv()
        if not hasattr(self, "place"):
            self.place = torch.empty_like(step.frames)
        return dataclasses.replace(step, frames=self.place.copy_(step.frames))


def test_a_step_that_is_kept_is_apart_from_what_the_next_overwrites():
    frames, rewards = lasting(torch.zeros(2, 3, 3)), torch.zeros(2)
    step = Step(frames, rewards, torch.zeros(2, dtype=torch.bool)).kept()
    frames += 1
    assert not step.frames.any()
    assert step.rewards is rewards  # nobody writes there


def test_the_last_frames_of_pools_stay_those_of_their_step():
    parts = [
        cls(num_envs=2, seed=seed, episode=9 + seed) for seed in (1, 2) for cls in (Same, Grid)
    ]
    pools, twins = Pools(parts[::2]), Pools(parts[1::2])
    pools.reset(), twins.reset()
    ended = []
    for _ in range(15):
        actions = torch.randint(4, (4,))
        step, twin = pools.step(actions), twins.step(actions)
        if step.final_frames is not None:
            ended.append((step.final_frames, twin.final_frames()))
    assert len(ended) == 2
    assert all(torch.equal(last(), expected) for last, expected in ended)


def test_last_frames_of_pools_are_those_of_their_environments():
    pools, alone = (
        Pools([Grid(num_envs=2, seed=seed, episode=4 + seed) for seed in (1, 2)]) for _ in range(2)
    )
    pools.reset(), alone.reset()
    for t in range(1, 7):
        step, steps = (
            pools.step(torch.full((4,), 1)),
            [part.step(torch.full((2,), 1)) for part in alone.parts],
        )
        assert (step.final_frames is None) == (t not in (5, 6))
        for i, own in enumerate(steps):
            if own.final_frames is not None:
                assert torch.equal(step.final_frames()[i::2], own.final_frames())
                assert not torch.equal(own.final_frames(), own.frames)


def test_every_action_of_parts_is_drawn_with_a_number_of_its_own():
    policy = ActorCritic((4, 36, 36), 4, (4, 4, 4), 8, ["relu"])
    policy.make_uniform()  # so that the smallest number alone decides
    pools, rollout = (
        Pools([Grid(num_envs=2, seed=seed) for seed in (1, 2)]),
        Rollout(50, 4, (36, 36)),
    )
    rollout.begin(pools.reset())
    player, drawn = Player(pools, policy.act, split=True), []
    for _ in range(2):
        player.play(rollout)
        assert torch.equal(rollout.actions, rollout.noise[:-1].argmin(-1))
        drawn.append(rollout.noise.clone())
        rollout.go_on_from(rollout)
    everything = torch.stack(drawn)
    assert len(everything.unique()) > 0.99 * everything.numel()
    assert everything.mean() == pytest.approx(1, abs=0.1)


def test_parts_that_step_in_turn_play_what_all_play_together():
    def act(obs, noise=None):
        newest = obs[:, -1]
        cell = newest.amax(2).argmax(1) // 6 * 6 + newest.amax(1).argmax(1) // 6
        return cell % 4, cell.float(), -cell.float()

    rollouts = []
    for split in (False, True):
        pools = Pools([Grid(num_envs=4, seed=seed, episode=5) for seed in (1, 2)])
        rollout = Rollout(7, 8, (36, 36))
        rollout.begin(pools.reset())
        player = Player(pools, act, split=split)
        assert len(player.parts) == (2 if split else 1)
        player.play(rollout)
        rollouts.append(rollout)
    whole, parts = rollouts
    for name in (
        "frames",
        "starts",
        "actions",
        "rewards",
        "dones",
        "log_probs",
        "values",
        "episodes",
    ):
        assert torch.equal(getattr(whole, name), getattr(parts, name)), name
    # Environment 2 i + p is the i-th of part p.
    for p, seed in enumerate((1, 2)):
        alone = Grid(num_envs=4, seed=seed, episode=5)
        assert torch.equal(whole.frames[3, p::2], alone.reset())
        for t in range(7):
            step = alone.step(whole.actions[t, p::2])
            assert torch.equal(whole.frames[t + 4, p::2], step.frames)
            assert torch.equal(whole.dones[t, p::2], step.dones)
