"""The rules and pictures of Rooms, a pixel world whose true state is known, as tensors."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ssedb.envs.rooms.layout import SIZES, draw_layout

UP, DOWN, LEFT, RIGHT, INTERACT = range(5)
ON_FLOOR, HELD, USED = range(3)
KEY_REWARD, DOOR_REWARD, TREASURE_REWARD = 1.0, 1.0, 5.0

# Colours by number: what is drawn, its gray for the agent, its colour for people.
VOID, WALL, FLOOR, OPEN_DOOR, MOVER, TREASURE, AGENT, LIT_FLOOR = range(8)
FIRST_DOOR, FIRST_KEY = 8, 12
GRAY = [0, 70, 20, 40, 130, 230, 255, 100, 150, 165, 180, 195, 190, 200, 210, 220]
COLOURS = [
    (12, 12, 16),
    (84, 88, 100),
    (28, 30, 36),
    (60, 56, 44),
    (214, 90, 78),
    (255, 214, 90),
    (245, 245, 245),
    (104, 96, 66),
]
LOCK_COLOURS = [(70, 130, 220), (70, 190, 140), (190, 110, 220), (240, 150, 60)]
COLOURS += LOCK_COLOURS * 2  # doors, and the keys that fit them


class State(NamedTuple):
    """True states of N environments, each field int64 [N] (keys [N, keys])."""

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
        self.side = SIZES[size].picture
        self.cells = cells = [(int(r), int(c)) for r, c in np.argwhere(layout.floor)]
        self.num_keys, self.phases = len(layout.keys), layout.phases
        number = {cell: i for i, cell in enumerate(cells)}
        moves = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
        target = [
            [number.get((r + y, c + x), i) for y, x in moves] for i, (r, c) in enumerate(cells)
        ]
        blocked = torch.zeros(self.phases, len(cells), dtype=torch.bool)
        for phase in range(self.phases):
            for row, column in layout.movers[phase]:
                blocked[phase, number[int(row), int(column)]] = True
        beside = [[abs(r - lr) + abs(c - lc) == 1 for lr, lc in layout.locks] for r, c in cells]
        # [cells, actions]: where a move leads; a wall leads nowhere.
        self._target = torch.tensor(target, device=device)
        self._blocked = blocked.to(device)  # [phases, cells]: where a mover is
        beside_lock = torch.tensor(beside, dtype=torch.bool, device=device)
        self._beside_lock = beside_lock  # [cells, keys]
        locks, keys = ([number[cell] for cell in some] for some in (layout.locks, layout.keys))
        self._lock_cells = torch.tensor(locks, dtype=torch.int64, device=device)
        self._key_cells = torch.tensor(keys, dtype=torch.int64, device=device)
        self._start, self._treasure = number[layout.start], number[layout.treasure]
        self._powers = 3 ** torch.arange(self.num_keys, device=device)
        self.scenes_per_cell = 3**self.num_keys * 2 * self.phases
        self.num_states = len(cells) * self.scenes_per_cell
        self.room_of_cell = torch.tensor(layout.room_of[layout.floor], device=device)
        self._draw_scenes()

    def start(self, num_envs: int) -> State:
        """Return the state in which every episode begins, N times."""
        zero = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        keys = zero[:, None].repeat(1, self.num_keys)
        return State(zero + self._start, keys, zero.clone(), zero.clone())

    def move(self, state: State, actions: Tensor) -> tuple[State, Tensor]:
        """Return the states after these actions int64 [N], and the rewards float32 [N]."""
        interact = actions == INTERACT
        on_key = state.cell[:, None] == self._key_cells
        picked = interact[:, None] & on_key & (state.keys == ON_FLOOR)
        opened = interact[:, None] & self._beside_lock[state.cell] & (state.keys == HELD)
        found = interact & (state.cell == self._treasure) & (state.taken == 0)
        target = self._target[state.cell, actions]
        shut = ((target[:, None] == self._lock_cells) & (state.keys != USED)).any(1)
        phase = (state.phase + 1) % self.phases
        cell = torch.where(shut | self._blocked[phase, target], state.cell, target)
        rewards = KEY_REWARD * picked.sum(1) + DOOR_REWARD * opened.sum(1) + TREASURE_REWARD * found
        keys = state.keys + picked.long() + opened.long()
        return State(cell, keys, state.taken + found.long(), phase), rewards

    def scene_ids(self, state: State) -> Tensor:
        """Return all of the state but the agent's cell as a number, int64 [N]."""
        return ((state.keys * self._powers).sum(1) * 2 + state.taken) * self.phases + state.phase

    def state_ids(self, state: State) -> Tensor:
        """Return the true state as a number below `num_states`, int64 [N]."""
        return state.cell * self.scenes_per_cell + self.scene_ids(state)

    def state_of(self, ids: Tensor) -> State:
        """Return the states that numbers int64 [N] stand for."""
        keys = ids[:, None] // (2 * self.phases) // self._powers % 3
        return State(ids // self.scenes_per_cell, keys, ids // self.phases % 2, ids % self.phases)

    @cached_property
    def transitions(self) -> tuple[Tensor, Tensor]:
        """Rules as tables over all states and actions, each [states, actions].

        The first has the states that actions lead to, int64, the second the rewards, float32.
        """
        ids = torch.arange(self.num_states, device=self.device)
        states = self.state_of(ids)
        every = (torch.full_like(ids, action) for action in range(self.num_actions))
        moved, rewards = zip(*(self.move(states, actions) for actions in every), strict=True)
        return torch.stack([*map(self.state_ids, moved)], 1), torch.stack(rewards, 1)

    def reachable(self) -> Tensor:
        """Tell of every state whether actions can reach it from the start, bool [states]."""
        reached, _ = self.transitions
        known = torch.zeros(self.num_states, dtype=torch.bool, device=self.device)
        frontier = self.state_ids(self.start(1))
        while len(frontier):
            known[frontier] = True
            frontier = reached[frontier].unique()
            frontier = frontier[~known[frontier]]
        return known

    def frames(self, state: State) -> Tensor:
        """Return what the agent sees, uint8 [N, side, side]."""
        return self.frames_of(self.state_ids(state))

    def frames_of(self, ids: Tensor) -> Tensor:
        """Return what the agent sees in the states of numbers int64 [N], uint8 [N, side, side]."""
        return self._draw(self._gray_scenes, ids, GRAY[AGENT])

    def pictures(self, state: State) -> Tensor:
        """Return pictures in colour for people, uint8 [N, side, side, 3]."""
        pictures = self._draw(self._scenes, self.state_ids(state), AGENT)
        colours = torch.tensor(COLOURS, dtype=torch.uint8, device=self.device)
        return colours[pictures.long()]

    def _draw(self, scenes: Tensor, ids: Tensor, agent: int) -> Tensor:
        """Draw the agent into the scenes of states int64 [N], uint8 [N, side, side]."""
        cells = ids // self.scenes_per_cell
        lit = self._lit_room.index_select(0, cells)
        pictures = scenes.index_select(0, lit * self.scenes_per_cell + ids % self.scenes_per_cell)
        pixels = self._agent_pixels.index_select(0, cells)
        return pictures.scatter_(1, pixels, agent).view(-1, self.side, self.side)

    def _draw_scenes(self) -> None:
        """Draw a picture without the agent for each lit room, and each state of what changes."""
        layout, pixels = self.layout, self.layout.size.cell_pixels
        offset = (self.side - layout.side * pixels) // 2
        solid, diamond, ring, checks = _sprites(pixels)

        def draw(picture: np.ndarray, cell: Any, sprite: np.ndarray, colour: int) -> None:
            top, left = offset + int(cell[0]) * pixels, offset + int(cell[1]) * pixels
            picture[top : top + pixels, left : left + pixels][sprite] = colour

        base = np.full((self.side, self.side), VOID, np.uint8)
        for cell in np.ndindex(layout.floor.shape):
            draw(base, cell, solid, FLOOR if layout.floor[cell] else WALL)
        lamp = layout.size.lamp
        self._lit_room = self.room_of_cell if lamp else torch.zeros_like(self.room_of_cell)
        rooms = layout.size.rooms**2 if lamp else 1
        scenes = np.empty((rooms, 3**self.num_keys, 2, self.phases, self.side, self.side), np.uint8)
        scenes[:] = base
        for room, code, taken, phase in np.ndindex(*scenes.shape[:4]):
            picture = scenes[room, code, taken, phase]
            for lit in np.argwhere(layout.room_of == room) if lamp else ():
                draw(picture, lit, solid, LIT_FLOOR)
            for key in range(self.num_keys):
                status = code // 3**key % 3
                door = OPEN_DOOR if status == USED else FIRST_DOOR + key
                draw(picture, layout.locks[key], solid, door)
                if status == ON_FLOOR:
                    draw(picture, layout.keys[key], diamond, FIRST_KEY + key)
            if not taken:
                draw(picture, layout.treasure, checks, TREASURE)
            for mover in layout.movers[phase]:
                draw(picture, mover, ring, MOVER)
        self._scenes = torch.from_numpy(scenes).view(-1, self.side * self.side).to(self.device)
        gray = torch.tensor(GRAY, dtype=torch.uint8, device=self.device)
        self._gray_scenes = gray[self._scenes.long()]
        corner = torch.tensor(self.cells, device=self.device) * pixels + offset  # [cells, 2]
        inside = torch.arange(pixels, device=self.device)
        rows, columns = corner[:, :1] + inside, corner[:, 1:] + inside
        pixel = rows[:, :, None] * self.side + columns[:, None, :]
        self._agent_pixels = pixel.flatten(1)  # [cells, pixels^2]


def _sprites(pixels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return masks [pixels, pixels]: a full square, a diamond, a ring, a chequerboard."""
    row, column = np.indices((pixels, pixels))
    middle = (pixels - 1) / 2
    diamond = np.abs(row - middle) + np.abs(column - middle) <= pixels / 2
    ring = np.maximum(np.abs(row - middle), np.abs(column - middle)) > middle - 1
    return np.ones((pixels, pixels), bool), diamond, ring, (row + column) % 2 == 0
