"""Rooms: a pixel world whose true state is known. N worlds as tensors, on any device, by the million steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ssedb.envs.base import Env, Step
from ssedb.envs.frames import SIDE
from ssedb.envs.layout import SIZES, draw_layout
from ssedb.envs.truth import Truth

UP, DOWN, LEFT, RIGHT, INTERACT = range(5)
ON_FLOOR, HELD, USED = range(3)
STAGGER = 16
"""Groups of worlds whose episodes end at different times."""
KEY_REWARD, DOOR_REWARD, TREASURE_REWARD = 1.0, 1.0, 5.0

# Colours by number: what is drawn, its gray for the agent, its colour for people.
VOID, WALL, FLOOR, OPEN_DOOR, MOVER, TREASURE, AGENT, FIRST_DOOR, FIRST_KEY = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    11,
)
GRAY = [0, 70, 20, 40, 130, 230, 255, 150, 165, 180, 195, 190, 200, 210, 220]
COLOURS = [
    (12, 12, 16),
    (84, 88, 100),
    (28, 30, 36),
    (60, 56, 44),
    (214, 90, 78),
    (255, 214, 90),
    (245, 245, 245),
]
COLOURS += [
    (70, 130, 220),
    (70, 190, 140),
    (190, 110, 220),
    (240, 150, 60),
] * 2  # doors, and the keys that fit them


class State(NamedTuple):
    """The dynamics-relevant state of some worlds, each int64 [N] (keys [N, keys])."""

    cell: Tensor
    keys: Tensor  # ON_FLOOR, HELD or USED
    taken: Tensor  # 1 once the treasure is gone
    phase: Tensor  # of the movers' walk


class World:
    """The rules and pictures of one layout, as tables; it holds no state."""

    num_actions = 5

    def __init__(
        self, size: str = "medium", layout_seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self.layout = layout = draw_layout(SIZES[size], layout_seed)
        self.device, self.episode = torch.device(device), SIZES[size].episode
        self.cells = cells = [(int(r), int(c)) for r, c in np.argwhere(layout.floor)]
        self.num_keys, self.phases = len(layout.keys), layout.phases
        number = {cell: i for i, cell in enumerate(cells)}
        moves = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
        target = [
            [number.get((r + dr, c + dc), i) for dr, dc in moves] for i, (r, c) in enumerate(cells)
        ]
        blocked = torch.zeros(self.phases, len(cells), dtype=torch.bool)
        for phase in range(self.phases):
            for row, column in layout.movers[phase]:
                blocked[phase, number[int(row), int(column)]] = True
        beside = [[abs(r - lr) + abs(c - lc) == 1 for lr, lc in layout.locks] for r, c in cells]
        self._target = torch.tensor(
            target, device=device
        )  # [cells, actions]: where a move leads; a wall leads nowhere
        self._blocked = blocked.to(device)  # [phases, cells]: where a mover is
        self._beside_lock = torch.tensor(beside, device=device)  # bool [cells, keys]
        self._lock_cells = torch.tensor([number[cell] for cell in layout.locks], device=device)
        self._key_cells = torch.tensor([number[cell] for cell in layout.keys], device=device)
        self._start, self._treasure = number[layout.start], number[layout.treasure]
        self._powers = 3 ** torch.arange(self.num_keys, device=device)
        self.scenes_per_cell = 3**self.num_keys * 2 * self.phases
        self.num_states = len(cells) * self.scenes_per_cell
        self.room_of_cell = torch.tensor(
            [int(layout.room_of[cell]) for cell in cells], device=device
        )
        self._draw_scenes()

    def start(self, num_envs: int) -> State:
        """Where every episode begins."""
        zero = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        return State(
            zero + self._start, zero[:, None].repeat(1, self.num_keys), zero.clone(), zero.clone()
        )

    def move(self, state: State, actions: Tensor) -> tuple[State, Tensor]:
        """The dynamics: the state after these actions, and the rewards."""
        interact = actions == INTERACT
        picked = (
            interact[:, None] & (state.cell[:, None] == self._key_cells) & (state.keys == ON_FLOOR)
        )
        opened = interact[:, None] & self._beside_lock[state.cell] & (state.keys == HELD)
        found = interact & (state.cell == self._treasure) & (state.taken == 0)
        target = self._target[state.cell, actions]
        shut = ((target[:, None] == self._lock_cells) & (state.keys != USED)).any(1)
        phase = (state.phase + 1) % self.phases
        cell = torch.where(shut | self._blocked[phase, target], state.cell, target)
        rewards = KEY_REWARD * picked.sum(1) + DOOR_REWARD * opened.sum(1) + TREASURE_REWARD * found
        return State(
            cell, state.keys + picked.long() + opened.long(), state.taken + found.long(), phase
        ), rewards

    def scene_ids(self, state: State) -> Tensor:
        """All of the state but the place."""
        return ((state.keys * self._powers).sum(1) * 2 + state.taken) * self.phases + state.phase

    def state_ids(self, state: State) -> Tensor:
        """The true state as a number below `num_states`, int64 [N]."""
        return state.cell * self.scenes_per_cell + self.scene_ids(state)

    def state_of(self, ids: Tensor) -> State:
        """The state that a number stands for."""
        keys = ids[:, None] // (2 * self.phases) // self._powers % 3
        return State(ids // self.scenes_per_cell, keys, ids // self.phases % 2, ids % self.phases)

    def reachable(self) -> Tensor:
        """Every state that some sequence of actions reaches from the start, bool [states]."""
        known = torch.zeros(self.num_states, dtype=torch.bool, device=self.device)
        frontier = self.state_ids(self.start(1))
        while len(frontier):
            known[frontier] = True
            states = self.state_of(frontier)
            reached = [
                self.move(states, torch.full_like(frontier, a))[0] for a in range(self.num_actions)
            ]
            frontier = torch.cat([self.state_ids(state) for state in reached]).unique()
            frontier = frontier[~known[frontier]]
        return known

    def frames(self, state: State) -> Tensor:
        """What the agent sees, uint8 [N, 84, 84]."""
        pictures = self._gray_scenes.index_select(0, self.scene_ids(state))
        return pictures.scatter_(1, self._agent_pixels[state.cell], GRAY[AGENT]).view(
            -1, SIDE, SIDE
        )

    def pictures(self, state: State) -> Tensor:
        """The same in colour for people, uint8 [N, 84, 84, 3]."""
        pictures = self._scenes.index_select(0, self.scene_ids(state))
        pictures.scatter_(1, self._agent_pixels[state.cell], AGENT)
        return torch.tensor(COLOURS, dtype=torch.uint8, device=self.device)[pictures.long()].view(
            -1, SIDE, SIDE, 3
        )

    def _draw_scenes(self) -> None:
        """A picture without the agent for every state of keys, treasure and movers."""
        layout, pixels = self.layout, self.layout.size.cell_pixels
        offset = (SIDE - layout.side * pixels) // 2
        solid, diamond, ring, checks = _sprites(pixels)

        def draw(picture: np.ndarray, cell: Any, sprite: np.ndarray, colour: int) -> None:
            top, left = offset + int(cell[0]) * pixels, offset + int(cell[1]) * pixels
            picture[top : top + pixels, left : left + pixels][sprite] = colour

        base = np.full((SIDE, SIDE), VOID, np.uint8)
        for cell in np.ndindex(layout.floor.shape):
            draw(base, cell, solid, FLOOR if layout.floor[cell] else WALL)
        scenes = np.empty((3**self.num_keys, 2, self.phases, SIDE, SIDE), np.uint8)
        scenes[:] = base
        for code, taken, phase in np.ndindex(*scenes.shape[:3]):
            picture = scenes[code, taken, phase]
            for key in range(self.num_keys):
                status = code // 3**key % 3
                draw(
                    picture,
                    layout.locks[key],
                    solid,
                    OPEN_DOOR if status == USED else FIRST_DOOR + key,
                )
                if status == ON_FLOOR:
                    draw(picture, layout.keys[key], diamond, FIRST_KEY + key)
            if not taken:
                draw(picture, layout.treasure, checks, TREASURE)
            for mover in layout.movers[phase]:
                draw(picture, mover, ring, MOVER)
        self._scenes = torch.from_numpy(scenes).view(-1, SIDE * SIDE).to(self.device)
        self._gray_scenes = torch.tensor(GRAY, dtype=torch.uint8, device=self.device)[
            self._scenes.long()
        ]
        corner = torch.tensor(self.cells, device=self.device) * pixels + offset  # [cells, 2]
        inside = torch.arange(pixels, device=self.device)
        rows, columns = corner[:, :1] + inside, corner[:, 1:] + inside
        self._agent_pixels = (rows[:, :, None] * SIDE + columns[:, None, :]).flatten(
            1
        )  # [cells, pixels^2]


class RoomsEnv(Env):
    """N worlds of one layout. Doors on the way to the deepest room are locked; `INTERACT` takes a key from the floor, opens
    a door beside the agent if its key is held, and takes the treasure. Movers walk to and fro and block the way.

    All episodes begin alike and end after a number of steps, at once unless `stagger` has spread them. The reward (keys,
    doors, treasure) is for measuring.
    """

    def __init__(
        self,
        num_envs: int,
        size: str = "medium",
        *,
        layout_seed: int = 0,
        device: torch.device | str = "cpu",
        max_steps: int | None = None,
    ) -> None:
        self.world = World(size, layout_seed, device)
        self.num_envs, self.num_actions, self.device = (
            num_envs,
            self.world.num_actions,
            self.world.device,
        )
        self.episode = min(max_steps or self.world.episode, self.world.episode)
        self.state = self.world.start(num_envs)
        self.truth = Truth(self.world)
        self._age = np.zeros(
            num_envs, np.int64
        )  # kept on the host, so that no step waits for the device
        self._never = torch.zeros(num_envs, dtype=torch.bool, device=self.device)

    def reset(self) -> Tensor:
        self.state = self.world.start(self.num_envs)
        self._age = np.zeros(self.num_envs, np.int64)
        self.truth.begin(self.world.state_ids(self.state))
        return self.world.frames(self.state)

    def stagger(self) -> None:
        self._age = np.arange(self.num_envs) % STAGGER * self.episode // STAGGER

    def step(self, actions: Tensor) -> Step:
        self.truth.act(actions)
        self.state, rewards = self.world.move(self.state, actions)
        self.truth.arrive(self.world.state_ids(self.state))
        self._age += 1
        frames = self.world.frames(self.state)
        ended = np.flatnonzero(self._age >= self.episode)
        if not len(ended):
            return Step(frames, rewards, self._never)
        self._age[ended] = 0
        index = torch.from_numpy(ended).to(self.device)
        fresh = self.world.start(len(ended))
        self.state = State(
            *(part.index_copy(0, index, new) for part, new in zip(self.state, fresh, strict=True))
        )
        self.truth.begin(self.world.state_ids(self.state), index)
        dones = self._never.index_fill(0, index, True)
        return Step(self.world.frames(self.state), rewards, dones, final_frames=lambda: frames)

    def true_states(self) -> Tensor:
        return self.truth.now

    def merge(self, gather: Callable[[Tensor], Tensor]) -> None:
        self.truth.merge(gather)

    def metrics(self) -> dict[str, float]:
        return self.truth.metrics()

    @property
    def restorable(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.state._asdict(),
            "age": torch.from_numpy(self._age.copy()),
            "truth": self.truth.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = State(*(state[name].to(self.device).clone() for name in State._fields))
        self._age = state["age"].cpu().numpy().copy()
        self.truth.load_state_dict(state["truth"])


def _sprites(pixels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Masks [pixels, pixels]: a full square, a diamond, a ring, a chequerboard."""
    row, column = np.indices((pixels, pixels))
    middle = (pixels - 1) / 2
    diamond = np.abs(row - middle) + np.abs(column - middle) <= pixels / 2
    ring = np.maximum(np.abs(row - middle), np.abs(column - middle)) > middle - 1
    return np.ones((pixels, pixels), bool), diamond, ring, (row + column) % 2 == 0
