"""The memory of transitions: which it keeps, that they stay whole, and its state."""

from __future__ import annotations

import pytest
import torch

from ssedb.actions import Box
from ssedb.reservoir import Reservoir
from ssedb.trainer import Trainer
from tests.toy import ToyEnv, tiny_config

SIDE = 2


def numbered(first: int, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return transitions whose frames and actions tell their number."""
    frames = torch.arange(first, first + count + 4).to(torch.uint8)
    stacks = frames.unfold(0, 4, 1)[:, :, None, None].expand(-1, -1, SIDE, SIDE)
    return stacks[:count], torch.arange(first, first + count), stacks[1 : count + 1]


def filled(capacity: int, count: int, batch: int = 32) -> Reservoir:
    memory = Reservoir(capacity, (4, SIDE, SIDE))
    for first in range(0, count, batch):
        memory.observe(*numbered(first, min(batch, count - first)))
    return memory


def test_reservoir_with_room_keeps_every_transition_in_order():
    memory = filled(capacity=50, count=40)
    assert int(memory.seen) == 40
    assert memory.actions[:40].tolist() == list(range(40))


def test_reservoir_without_room_keeps_early_and_late_transitions_alike():
    torch.manual_seed(0)
    count, capacity, trials = 400, 40, 200
    kept = torch.zeros(count)
    for _ in range(trials):
        kept += torch.bincount(filled(capacity, count).actions[:capacity], minlength=count)
    assert kept.sum() == capacity * trials  # nothing twice, no place empty
    quarters = kept.view(4, -1).sum(1) / (capacity * trials)
    assert ((quarters - 0.25).abs() < 0.02).all(), quarters  # five standard deviations
    assert kept.max() < 45  # of 20 expected


def test_reservoir_transitions_for_one_place_leave_the_last(monkeypatch):
    memory = Reservoir(1, (4, SIDE, SIDE))
    zeros = lambda like, dtype: torch.zeros_like(like, dtype=dtype)  # noqa: E731
    monkeypatch.setattr(torch, "rand_like", zeros)  # every transition takes place 0
    memory.observe(*numbered(0, 30))
    assert memory.actions[0] == 29


def test_reservoir_pair_across_an_episode_end_is_left_out():
    obs, actions, next_obs = numbered(0, 6)
    next_obs = next_obs.clone()
    next_obs[2] = 77  # the first stack of another episode
    memory = Reservoir(10, (4, SIDE, SIDE))
    memory.observe(obs, actions, next_obs)
    assert int(memory.seen) == 5
    assert memory.actions[:5].tolist() == [0, 1, 3, 4, 5]


def test_reservoir_sample_returns_whole_transitions_of_all_that_is_stored():
    torch.manual_seed(0)
    obs, actions, next_obs = filled(capacity=20, count=200).sample(400)
    assert len(actions.unique()) == 20
    expected = (actions[:, None] + torch.arange(5)).to(torch.uint8)  # numbers of its frames
    assert torch.equal(obs[:, :, 0, 0], expected[:, :-1])
    assert torch.equal(next_obs[:, :, 1, 1], expected[:, 1:])


def test_reservoir_sample_draws_all_that_is_stored_equally_often():
    torch.manual_seed(0)
    _, actions, _ = filled(capacity=20, count=20).sample(20_000)
    counts = actions.bincount(minlength=20)
    assert ((counts - 1000).abs() < 155).all(), counts  # five standard deviations


def test_reservoir_sample_before_it_is_full_draws_only_what_is_stored():
    torch.manual_seed(0)
    _, actions, _ = filled(capacity=1000, count=10).sample(200)
    assert set(actions.tolist()) == set(range(10))


@pytest.mark.parametrize("count", [10, 200])
def test_reservoir_state_restored_continues_as_the_first(count):
    first, second = filled(20, count), Reservoir(20, (4, SIDE, SIDE))
    state = first.state_dict()
    assert state["frames"].untyped_storage().nbytes() == min(count, 20) * 5 * SIDE**2
    second.load_state_dict(state)
    for memory in (first, second):
        torch.manual_seed(3)
        memory.observe(*numbered(300, 32))
    assert torch.equal(first.frames[:20], second.frames[:20])
    assert torch.equal(first.actions[:20], second.actions[:20])
    assert int(first.seen) == int(second.seen) == count + 32


def test_reservoir_of_vectors_keeps_whole_transitions_with_their_actions():
    memory = Reservoir(50, (3,), Box((-1.0,) * 2, (1.0,) * 2))
    obs = torch.arange(60.0).view(20, 3)
    memory.observe(obs, obs[:, :2] / 100, obs + 0.5)
    before, actions, after = memory.sample(200)
    assert before.dtype == torch.float32
    assert torch.equal(after, before + 0.5)
    assert torch.equal(actions, before[:, :2] / 100)
    assert len(before[:, 0].unique()) == 20


class Calendar(ToyEnv):
    """Shows a number drawn for the episode, and the step within it."""

    vectors = True
    num_actions = 2

    def draw(self) -> torch.Tensor:
        drawn = torch.rand(self.num_envs, 1, generator=self.generator)
        return torch.cat([drawn, torch.zeros_like(drawn)], 1)

    def frames(self) -> torch.Tensor:
        return self.state.clone()

    def act(self, actions: torch.Tensor) -> torch.Tensor:
        self.state[:, 1] += 1
        return torch.zeros(self.num_envs)


def test_memory_of_a_run_on_vectors_holds_no_pair_across_an_episode_end(tmp_path):
    config = tiny_config(tmp_path, bonus="db-ensemble", preset="rooms", bonus_options={})
    trainer = Trainer(config, Calendar(episode=5))
    for _ in range(2):
        trainer.iterate()
    memory = trainer.bonus.memory
    before, after = memory.frames[: int(memory.seen)].unbind(1)
    assert (after - before).unique(dim=0).tolist() == [[0, 1]]
    assert int(memory.seen) == 8 * (64 - 64 // 5)
