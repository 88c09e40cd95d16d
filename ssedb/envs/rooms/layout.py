"""The plan of a Rooms world, drawn from a seed: rooms, doors, locks, keys, movers, treasure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ssedb.envs.frames import SIDE


@dataclass(frozen=True)
class Size:
    """Measures of a world. Its side in cells is rooms * (interior + 1) + 1.

    Attributes:
        rooms: rooms along each side.
        interior: cells along each side of a room.
        cell_pixels: pixels along each side of a cell.
        keys: keys, and locks that they open.
        movers: movers that walk to and fro.
        episode: steps of an episode.
    """

    rooms: int
    interior: int
    cell_pixels: int
    keys: int
    movers: int
    episode: int
    picture: int = SIDE
    """Height and width of a frame, in pixels."""
    spiral: bool = False
    """Whether the rooms are one chain that winds to the middle, instead of a maze with loops."""
    lamp: bool = False
    """Whether the floor of the agent's room is bright."""


SIZES = {
    "tiny": Size(
        rooms=4,
        interior=2,
        cell_pixels=3,
        keys=0,
        movers=0,
        episode=100,
        picture=44,
        spiral=True,
        lamp=True,
    ),
    "small": Size(rooms=2, interior=4, cell_pixels=7, keys=1, movers=1, episode=100),
    "medium": Size(rooms=4, interior=4, cell_pixels=4, keys=3, movers=4, episode=500),
    "large": Size(rooms=5, interior=4, cell_pixels=3, keys=4, movers=6, episode=1000),
}

Cell = tuple[int, int]
Room = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """A plan. Cells are (row, column); a lock's door is a cell of the wall that its key opens."""

    size: Size
    floor: np.ndarray  # bool [side, side], where one can stand once all doors are open
    room_of: np.ndarray  # int [side, side], number of the room (of a doorway too), -1 in walls
    start: Cell
    locks: tuple[Cell, ...]
    keys: tuple[Cell, ...]
    treasure: Cell
    movers: np.ndarray  # int [phases, movers, 2], where each mover is

    @property
    def side(self) -> int:
        """Cells along each side."""
        return len(self.floor)

    @property
    def phases(self) -> int:
        """Steps after which all movers are where they were."""
        return len(self.movers)


def draw_layout(size: Size, seed: int) -> Layout:
    """Draw rooms whose deepest one lies behind all locks.

    Each key lies in front of its own lock, in the room farthest from it.
    """
    rng = np.random.default_rng(seed)
    parent = _spiral(size.rooms) if size.spiral else _maze(size.rooms, rng)
    start, far = (0, 0), max(parent, key=lambda room: (len(_path(parent, room)), room))
    path = _path(parent, far)
    # The rooms behind the locks.
    locked = [path[round((i + 1) * (len(path) - 1) / (size.keys + 1))] for i in range(size.keys)]
    region = {room: sum(step in locked for step in _path(parent, room)) for room in parent}

    side = size.rooms * (size.interior + 1) + 1
    floor, room_of = np.zeros((side, side), bool), np.full((side, side), -1)
    for row, column in parent:
        top, left = _corner(size, (row, column))
        floor[top : top + size.interior, left : left + size.interior] = True
        room_of[top : top + size.interior, left : left + size.interior] = row * size.rooms + column
    doors = {}
    for room, before in parent.items():
        if room != start:
            doors[room] = _doorway(size, room, before, rng)
            floor[doors[room]], room_of[doors[room]] = True, room_of[_corner(size, room)]
    for room in parent:  # a few loops, never round a lock
        for other in ((room[0] + 1, room[1]), (room[0], room[1] + 1)):
            joined = parent.get(other) == room or parent.get(room) == other
            if other not in parent or size.spiral or joined or region[other] != region[room]:
                continue
            if rng.random() < 0.5:
                cell = _doorway(size, other, room, rng)
                floor[cell], room_of[cell] = True, room_of[_corner(size, other)]

    def away_from(goal: Room, choices: list[Room]) -> Room:
        return max(choices, key=lambda room: (_distance(parent, room, goal), rng.random()))

    free = [room for room in parent if room not in (start, far)]
    key_rooms = []
    for i, lock in enumerate(locked):
        choices = [room for room in free if region[room] == i and room not in key_rooms]
        key_rooms.append(away_from(parent[lock], choices or [parent[lock]]))
    taken: set[Cell] = set()
    keys = tuple(_inside(size, room, rng, taken) for room in key_rooms)
    treasure, first = _inside(size, far, rng, taken), _inside(size, start, rng, taken)
    locks, movers = tuple(doors[room] for room in locked), _movers(size, free, rng)
    return Layout(size, floor, room_of, first, locks, keys, treasure, movers)


def _maze(rooms: int, rng: np.random.Generator) -> dict[Room, Room]:
    """Return a depth-first maze: the parent of each room on the way to the start."""
    parent: dict[Room, Room] = {(0, 0): (0, 0)}
    stack = [(0, 0)]
    while stack:
        row, column = stack[-1]
        around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        fresh = [r for r in around if 0 <= r[0] < rooms and 0 <= r[1] < rooms and r not in parent]
        if not fresh:
            stack.pop()
            continue
        room = fresh[rng.integers(len(fresh))]
        parent[room] = (row, column)
        stack.append(room)
    return parent


def _spiral(rooms: int) -> dict[Room, Room]:
    """Chain the rooms from the first corner round to the middle: each room's parent."""
    parent: dict[Room, Room] = {(0, 0): (0, 0)}
    room, step = (0, 0), (0, 1)
    while len(parent) < rooms**2:
        ahead = room[0] + step[0], room[1] + step[1]
        if ahead in parent or not all(0 <= place < rooms for place in ahead):
            step = step[1], -step[0]
            continue
        parent[ahead], room = room, ahead
    return parent


def _path(parent: dict[Room, Room], room: Room) -> list[Room]:
    """Return the rooms from the start to this one."""
    path = [room]
    while parent[path[-1]] != path[-1]:
        path.append(parent[path[-1]])
    return path[::-1]


def _distance(parent: dict[Room, Room], first: Room, second: Room) -> int:
    a, b = _path(parent, first), _path(parent, second)
    shared = sum(x == y for x, y in zip(a, b, strict=False))
    return len(a) + len(b) - 2 * shared


def _corner(size: Size, room: Room) -> Cell:
    return room[0] * (size.interior + 1) + 1, room[1] * (size.interior + 1) + 1


def _doorway(size: Size, room: Room, neighbour: Room, rng: np.random.Generator) -> Cell:
    """Draw a cell of the wall between two rooms."""
    top, left = map(max, _corner(size, room), _corner(size, neighbour))
    along = int(rng.integers(size.interior))
    return (top - 1, left + along) if room[1] == neighbour[1] else (top + along, left - 1)


def _inside(size: Size, room: Room, rng: np.random.Generator, taken: set[Cell]) -> Cell:
    """Draw a cell of the room that nothing lies on."""
    top, left = _corner(size, room)
    while True:
        cell = (top + int(rng.integers(size.interior)), left + int(rng.integers(size.interior)))
        if cell not in taken:
            taken.add(cell)
            return cell


def _movers(size: Size, rooms: list[Room], rng: np.random.Generator) -> np.ndarray:
    """Draw walks to and fro across rooms, all with the same period: [phases, movers, 2]."""
    there = list(range(size.interior))
    walk = there + there[-2:0:-1] if size.movers else [0]
    movers = np.zeros((len(walk), size.movers, 2), int)
    for i, choice in enumerate(rng.permutation(len(rooms))[: size.movers]):
        top, left = _corner(size, rooms[choice])
        across, shift = int(rng.integers(size.interior)), int(rng.integers(len(walk)))
        upright = bool(rng.integers(2))
        for phase in range(len(walk)):
            along = walk[(phase + shift) % len(walk)]
            down, right = (along, across) if upright else (across, along)
            movers[phase, i] = top + down, left + right
    return movers
