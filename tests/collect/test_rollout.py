"""Frames kept once, stacks by indexing: the same observations as a queue of frames would make."""

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssedb.collect.rollout import Rollout

SHAPE = (3, 2)


@settings(max_examples=40, deadline=None)
@given(steps=st.integers(1, 9), rollouts=st.integers(1, 4), seed=st.integers(0, 1000))
def test_stacks_match_a_queue_that_each_episode_fills_with_its_first_frame(steps, rollouts, seed):
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
            rollout.store_step(*rollout.at(t), frames, zeros, dones)
            for n, queue in enumerate(queues):
                queue.extend([frames[n]] * 4 if dones[n] else [frames[n]])
            expected.append([torch.stack(list(q)) for q in queues])
        for t in range(steps + 1):
            assert torch.equal(rollout.obs(t), torch.stack(expected[t]))
        times, n = rollout.indices(torch.tensor([2, 0]))
        for stack, t, env in zip(rollout.stacks(times + 1, n), times, n, strict=True):
            assert torch.equal(stack, expected[t + 1][env])
        rollout.continue_from(rollout)


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (0, 2), (1, 2)])
def test_episodes_are_numbered_on_over_ends_and_rollouts(rank, size):
    """Of two processes, the numbers of the first are 0, 1, 4, 5, ..., of the other 2, 3, 6, 7."""
    rollout = Rollout(4, 2, SHAPE, rank=rank, size=size)
    rollout.begin(torch.zeros(2, *SHAPE, dtype=torch.uint8))
    frames, rewards = torch.zeros(2, *SHAPE, dtype=torch.uint8), torch.zeros(2)
    dones = torch.tensor([[0, 1], [0, 0], [1, 0], [0, 0]], dtype=torch.bool)  # [T, N]
    for expected in ([[0, 0, 0, 2, 2], [1, 3, 3, 3, 3]], [[2, 2, 2, 4, 4], [3, 5, 5, 5, 5]]):
        for t in range(4):
            rollout.store_step(*rollout.at(t), frames, rewards, dones[t])
        alone = torch.tensor(expected)
        assert torch.equal(rollout.episodes.T, 2 * (alone // 2 * size + rank) + alone % 2)
        rollout.continue_from(rollout)


def test_rollout_of_the_papers_size_fits_in_150_megabytes():
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


def test_minibatches_of_two_processes_are_disjoint_halves_of_those_of_one():
    batches = []
    for rank, size in ((0, 1), (0, 2), (1, 2)):
        rollout = Rollout(5, 12 // size, SHAPE, rank=rank, size=size).whole(
            lambda x, dim, size=size: torch.cat([x] * size, dim)
        )
        torch.manual_seed(0)
        batches.append([set(envs.tolist()) for _, envs in rollout.minibatches(4)])
    for whole, first, second in zip(*batches, strict=True):
        assert len(first) == len(second) == 2
        assert first | second == whole
        assert not first & second


def test_whole_puts_the_environments_of_all_processes_side_by_side():
    parts = [Rollout(3, 2, SHAPE, rank=rank, size=2) for rank in (0, 1)]
    for rank, part in enumerate(parts):
        part.begin(torch.full((2, *SHAPE), rank + 1, dtype=torch.uint8))
    names = {id(value): name for part in parts for name, value in vars(part).items()}
    whole = parts[0].whole(
        lambda x, dim: torch.cat([getattr(part, names[id(x)]) for part in parts], dim)
    )
    assert whole.num_envs == 4
    assert whole.obs(0)[:, -1, 0, 0].tolist() == [1, 1, 2, 2]
    assert whole.episodes[0].tolist() == [0, 1, 2, 3]
    again = Rollout(3, 2, SHAPE, rank=1, size=2)
    again.load_state_dict(whole.state_dict())
    assert torch.equal(again.frames[3:], parts[1].frames[3:])
    assert again.episodes[3].tolist() == [2, 3]
