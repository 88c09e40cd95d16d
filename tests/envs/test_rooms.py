"""Rooms against a slow and obvious world, and its counts against brute force."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ssedb
from ssedb.envs.layout import SIZES, draw_layout
from ssedb.envs.rooms import AGENT, GRAY, STAGGER, RoomsEnv, State, World


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
        picture = np.zeros((84, 84), np.uint8)
        offset = (84 - layout.side * pixels) // 2
        brightness = np.where(layout.floor, 20, 70)

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
    size=st.sampled_from(["small", "medium", "large"]),
)
def test_dynamics_and_pictures_are_those_of_the_slow_world(seed, layout_seed, size):
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


def test_every_action_in_every_state_does_what_it_does_in_the_slow_world():
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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout_seed", range(4))
def test_every_world_can_be_solved_but_only_through_its_locks(size, layout_seed):
    world = World(size, layout_seed)
    ids = torch.arange(world.num_states)[world.reachable()]
    state = world.state_of(ids)
    assert state.taken.any()  # the treasure can be had
    assert (state.keys[state.taken == 1] == 2).all()  # and only with every door open
    order = [(state.keys[:, i] > 0).sum() for i in range(world.num_keys)]
    assert order == sorted(order, reverse=True)  # each key lies in front of its own lock
    assert world.room_of_cell.unique().tolist() == list(range(SIZES[size].rooms ** 2))


def test_layouts_come_from_their_seed():
    first, again, other = (draw_layout(SIZES["medium"], seed) for seed in (1, 1, 2))
    assert np.array_equal(first.floor, again.floor)
    assert (first.keys, first.locks) == (again.keys, again.locks)
    assert not np.array_equal(first.floor, other.floor)


def test_counts_against_brute_force():
    env = RoomsEnv(5, "small", max_steps=30)
    generator = torch.Generator().manual_seed(0)
    env.reset()
    env.stagger()  # so that some episodes end while others go on
    now = env.world.state_ids(env.state).tolist()
    visits, choices, first = Counter(now), Counter(), dict.fromkeys(now, 0)
    for t in range(1, 120):
        actions = torch.randint(5, (5,), generator=generator)
        choices.update(zip(now, actions.tolist(), strict=True))
        before = env.state
        step = env.step(actions)
        arrived = env.world.state_ids(env.world.move(before, actions)[0]).tolist()
        now = env.world.state_ids(env.state).tolist()
        begun = [s for s, done in zip(now, step.dones.tolist(), strict=True) if done]
        visits.update(arrived + begun)
        for s in arrived + begun:
            first.setdefault(s, 5 * t)
    truth = env.truth
    assert {i: n for i, n in enumerate(truth.visits.tolist()) if n} == visits
    assert {
        (i, a): n for i, row in enumerate(truth.choices.tolist()) for a, n in enumerate(row) if n
    } == choices
    assert {i: n for i, n in enumerate(truth.first_seen.tolist()) if n >= 0} == first
    metrics = env.metrics()
    reachable = env.world.reachable()
    assert metrics["states_seen"] == len(visits)
    assert metrics["states_share"] == pytest.approx(len(visits) / int(reachable.sum()))
    cells = {env.world.cells[s // env.world.scenes_per_cell] for s in visits}
    all_cells = {
        int(s) // env.world.scenes_per_cell for s in torch.arange(env.world.num_states)[reachable]
    }
    assert metrics["cells_share"] == pytest.approx(len(cells) / len(all_cells))
    assert metrics["rooms_share"] == len({env.world.layout.room_of[c] for c in cells}) / 4
    share = np.array(list(visits.values())) / sum(visits.values())
    assert metrics["last_first_visit"] == max(first.values())
    assert metrics["visit_entropy"] == pytest.approx(-(share * np.log(share)).sum())


def test_episodes_end_by_group_after_their_limit_and_keep_the_last_frame():
    env = RoomsEnv(32, "small", max_steps=48)
    first = env.reset()
    env.stagger()
    ends = [[] for _ in range(32)]
    for t in range(1, 150):
        step = env.step(torch.full((32,), 3))
        for i in torch.nonzero(step.dones).flatten().tolist():
            ends[i].append(t)
            assert torch.equal(step.frames[i], first[i])
            assert not torch.equal(step.final_frames()[i], step.frames[i])
        assert (step.final_frames is None) == (not step.dones.any())
    for i, times in enumerate(ends):
        assert times[0] == 48 - i % STAGGER * 3
        assert set(np.diff(times)) == {48}


def test_a_reset_begins_whole_episodes_and_only_training_spreads_them(tmp_path):
    from ssedb.runs.evaluation import evaluate
    from ssedb.trainer import Trainer
    from tests.toy import tiny_config

    config = tiny_config(tmp_path / "run", env="rooms-small", steps=256, obs_norm_steps=64)
    ssedb.train(config)
    assert evaluate(tmp_path / "run", 5, device="cpu").lengths == [100] * 5
    assert len(set(Trainer(config).env.state_dict()["env"]["age"].tolist())) == 8


def test_restores_exactly_and_repeats_itself():
    env, twin = RoomsEnv(7), RoomsEnv(7)
    generator = torch.Generator().manual_seed(0)
    env.reset()
    for _ in range(40):
        env.step(torch.randint(5, (7,), generator=generator))
    twin.load_state_dict(env.state_dict())
    for _ in range(600):
        actions = torch.randint(5, (7,), generator=generator)
        first, second = env.step(actions), twin.step(actions)
        assert torch.equal(first.frames, second.frames)
        assert torch.equal(first.dones, second.dones)
    assert torch.equal(env.truth.choices, twin.truth.choices)
    assert env.metrics() == twin.metrics()


def test_a_random_agent_sees_under_a_quarter_of_the_states_in_a_million_steps():
    env = RoomsEnv(256)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    while env.truth.steps < 1_000_000:  # eight whole episodes in each world
        env.step(torch.randint(5, (256,), generator=generator))
    assert env.metrics()["states_share"] < 0.25


def test_pictures_for_people():
    world = World("medium")
    picture = world.pictures(world.start(2))
    assert (picture.shape, picture.dtype) == ((2, 84, 84, 3), torch.uint8)
    assert (
        len(picture[0].flatten(0, 1).unique(dim=0)) >= 8
    )  # walls, floor, doors, keys, movers, treasure, agent
    assert GRAY[AGENT] == 255


@pytest.mark.parametrize(
    ("name", "canonical"),
    [("rooms", "rooms"), ("Rooms-Small", "rooms-small"), ("rooms-medium@0", "rooms")],
)
def test_names(name, canonical):
    assert ssedb.TrainConfig(env=name).env == canonical
    assert ssedb.TrainConfig(env="rooms-large@12").env == "rooms-large@12"
    with pytest.raises(ssedb.ConfigError, match="unknown environment 'rooms-huge'"):
        ssedb.TrainConfig(env="rooms-huge")


def test_training_logs_the_truth_and_resumes_bit_for_bit(tmp_path):
    from ssedb.runs.loop import resume, train
    from ssedb.runs.metrics import read_metrics
    from tests.toy import tiny_config

    settings = dict(env="rooms-small", noise="clouds", obs_norm_steps=64)
    whole = train(tiny_config(tmp_path / "whole", steps=1024, **settings))
    train(tiny_config(tmp_path / "halves", steps=512, **settings))
    halves = resume(tmp_path / "halves", steps=1024)
    rows = [
        [
            {k: v for k, v in row.items() if k not in ("time", "sps")}
            for row in read_metrics(run.out)
        ]
        for run in (whole, halves)
    ]
    assert rows[0] == rows[1]
    assert rows[0][-1]["states_seen"] > rows[0][0]["states_seen"] > 1
