"""Layouts: every one can be solved, through its locks alone."""

import numpy as np
import pytest
import torch

from ssedb.envs.rooms.layout import SIZES, draw_layout
from ssedb.envs.rooms.world import World


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout_seed", range(4))
def test_layout_of_any_size_is_solved_only_through_its_locks(size, layout_seed):
    world = World(size, layout_seed)
    ids = torch.arange(world.num_states)[world.reachable()]
    state = world.state_of(ids)
    assert state.taken.any()  # the treasure can be had
    assert (state.keys[state.taken == 1] == 2).all()  # and only with every door open
    order = [(state.keys[:, i] > 0).sum() for i in range(world.num_keys)]
    assert order == sorted(order, reverse=True)  # each key lies in front of its own lock
    assert world.room_of_cell.unique().tolist() == list(range(SIZES[size].rooms ** 2))


def test_layout_of_the_tiny_world_is_one_chain_that_ends_in_the_middle():
    layout = draw_layout(SIZES["tiny"], 0)
    doorways = [cell for cell in np.argwhere(layout.floor) if (cell % 3 == 0).any()]
    assert len(doorways) == 16 - 1  # a chain needs no more
    assert layout.room_of[layout.start] == 0
    assert layout.room_of[layout.treasure] == 9
    chain = [0, 1, 2, 3, 7, 11, 15, 14, 13, 12, 8, 4, 5, 6, 10, 9]
    for row, column in doorways:
        beside = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        rooms = {int(layout.room_of[cell]) for cell in beside} - {-1}
        first, second = sorted(map(chain.index, rooms))
        assert second == first + 1


def test_layout_with_the_same_seed_is_the_same():
    first, again, other = (draw_layout(SIZES["medium"], seed) for seed in (1, 1, 2))
    assert np.array_equal(first.floor, again.floor)
    assert (first.keys, first.locks) == (again.keys, again.locks)
    assert not np.array_equal(first.floor, other.floor)
