"""The rules and pictures of Rooms against a slow and obvious world."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssedb.envs.rooms.world import AGENT, GRAY, State, World


class SlowWorld:
    """One world by the rules as one would tell them to a person."""

    def __init__(self, layout):
        self.layout = layout
        self.reset()

    def reset(self):
        self.place, self.time, self.treasure_gone = self.layout.start, 0, False
        self.key_is = ["floor"] * len(self.layout.keys)

    def step(self, action):
        reward = 0
        row, column = self.place
        goal = self.place
        if action == 4:
            doors_beside = [
                i
                for i, (r, c) in enumerate(self.layout.locks)
                if abs(r - row) + abs(c - column) == 1
            ]
            openable = [i for i in doors_beside if self.key_is[i] == "held"]
            for i, cell in enumerate(self.layout.keys):
                if cell == self.place and self.key_is[i] == "floor":
                    self.key_is[i] = "held"
                    reward += 1
            for i in openable:
                self.key_is[i] = "used"
                reward += 1
            if self.place == self.layout.treasure and not self.treasure_gone:
                self.treasure_gone = True
                reward += 5
        else:
            dr, dc = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}[action]
            goal = (row + dr, column + dc)
        self.time += 1
        movers = {
            tuple(m) for m in self.layout.movers[self.time % len(self.layout.movers)].tolist()
        }
        shut = any(
            goal == lock and self.key_is[i] != "used" for i, lock in enumerate(self.layout.locks)
        )
        if self.layout.floor[goal] and not shut and goal not in movers:
            self.place = goal
        return reward

    def true_state(self):
        keys = tuple({"floor": 0, "held": 1, "used": 2}[k] for k in self.key_is)
        return self.place, keys, int(self.treasure_gone), self.time % len(self.layout.movers)

    def frame(self):
        layout, pixels = self.layout, self.layout.size.cell_pixels
        side = 44 if layout.side == 13 else 84  # only the tiny world is 13 cells wide
        picture = np.zeros((side, side), np.uint8)
        offset = (side - layout.side * pixels) // 2
        brightness = np.where(layout.floor, 20, 70)
        if layout.size.lamp:  # on in the agent's room and in the doorway that belongs to it
            brightness[layout.room_of == layout.room_of[self.place]] = 100

        def block(cell):
            top, left = offset + cell[0] * pixels, offset + cell[1] * pixels
            return picture[top : top + pixels, left : left + pixels]

        for cell in np.ndindex(brightness.shape):
            block(cell)[:] = brightness[cell]
        middle = (pixels - 1) / 2
        for i, cell in enumerate(layout.locks):
            block(cell)[:] = 40 if self.key_is[i] == "used" else (150, 165, 180, 195)[i]
        for i, cell in enumerate(layout.keys):
            if self.key_is[i] == "floor":
                for y, x in np.ndindex(pixels, pixels):
                    if abs(y - middle) + abs(x - middle) <= pixels / 2:
                        block(cell)[y, x] = (190, 200, 210, 220)[i]
        if not self.treasure_gone:
            for y, x in np.ndindex(pixels, pixels):
                if (y + x) % 2 == 0:
                    block(layout.treasure)[y, x] = 230
        for cell in layout.movers[self.time % len(layout.movers)]:
            view = block(cell)
            for y, x in np.ndindex(pixels, pixels):
                if y in (0, pixels - 1) or x in (0, pixels - 1):
                    view[y, x] = 130
        block(self.place)[:] = 255
        return picture


def decode(world: World, state: State, i: int):
    return (
        world.cells[int(state.cell[i])],
        tuple(state.keys[i].tolist()),
        int(state.taken[i]),
        int(state.phase[i]),
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    layout_seed=st.integers(0, 50),
    size=st.sampled_from(["tiny", "small", "medium", "large"]),
)
def test_world_on_random_walks_moves_and_looks_like_the_slow_one(seed, layout_seed, size):
    rng = np.random.default_rng(seed)
    world = World(size, layout_seed)
    slow = [SlowWorld(world.layout) for _ in range(3)]
    # Start anywhere that can be reached, so that deep states are tried too.
    ids = torch.from_numpy(rng.choice(np.flatnonzero(world.reachable().numpy()), 3))
    state = world.state_of(ids)
    assert torch.equal(world.state_ids(state), ids)
    for i, one in enumerate(slow):
        one.place, keys, gone, one.time = decode(world, state, i)
        one.key_is, one.treasure_gone = [("floor", "held", "used")[k] for k in keys], bool(gone)
    for _ in range(40):
        actions = rng.choice(5, 3, p=[0.18, 0.18, 0.18, 0.18, 0.28])
        state, rewards = world.move(state, torch.from_numpy(actions))
        assert rewards.tolist() == [one.step(int(a)) for one, a in zip(slow, actions, strict=True)]
        assert [decode(world, state, i) for i in range(3)] == [one.true_state() for one in slow]
    frames = world.frames(state).numpy()
    for i, one in enumerate(slow):
        assert np.array_equal(frames[i], one.frame())


def test_world_in_every_state_moves_like_the_slow_one():
    world = World("small")
    ids = torch.arange(world.num_states)[world.reachable()]
    state, slow = world.state_of(ids), SlowWorld(world.layout)
    for action in range(world.num_actions):
        after, rewards = world.move(state, torch.full_like(ids, action))
        for i in range(len(ids)):
            slow.place, keys, gone, slow.time = decode(world, state, i)
            slow.key_is, slow.treasure_gone = (
                [("floor", "held", "used")[k] for k in keys],
                bool(gone),
            )
            assert slow.step(action) == rewards[i]
            assert slow.true_state() == decode(world, after, i)


def test_world_with_a_lamp_lights_the_room_of_the_agent_alone():
    tiny, small = World("tiny"), World("small")
    lit = tiny.frames(tiny.start(1)) == 100
    assert lit.sum() == 4 * 9 - 9  # a room of 4 cells of 9 pixels, less the agent's
    assert not (small.frames(small.start(1)) == 100).any()
    assert (tiny.pictures(tiny.start(1))[0] == torch.tensor([104, 96, 66])).all(-1).sum() == 27


def test_pictures_for_people_show_every_kind_of_thing():
    world = World("medium")
    picture = world.pictures(world.start(2))
    assert (picture.shape, picture.dtype) == ((2, 84, 84, 3), torch.uint8)
    assert (
        len(picture[0].flatten(0, 1).unique(dim=0)) >= 8
    )  # walls, floor, doors, keys, movers, treasure, agent
    assert GRAY[AGENT] == 255
