"""Visit counts against brute force."""

import threading
from collections import Counter

import numpy as np
import pytest
import torch

from ssedb.envs.rooms.env import RoomsEnv


def test_visit_counts_over_staggered_episodes_are_those_of_brute_force():
    env = RoomsEnv(5, "small", max_steps=30)
    generator = torch.Generator().manual_seed(0)
    env.reset()
    env.stagger()  # so that some episodes end while others go on
    now = env.world.state_ids(env.state).tolist()
    visits, pairs, first = Counter(now), Counter(), dict.fromkeys(now, 0)
    for t in range(1, 120):
        actions = torch.randint(5, (5,), generator=generator)
        pairs.update(zip(now, actions.tolist(), strict=True))
        arrived = env.world.state_ids(env.world.move(env.state, actions)[0]).tolist()
        step = env.step(actions)
        now = env.world.state_ids(env.state).tolist()
        begun = [s for s, done in zip(now, step.dones.tolist(), strict=True) if done]
        visits.update(arrived + begun)
        for s in arrived + begun:
            first.setdefault(s, 5 * t)
    counts = env.visit_counts
    assert {i: n for i, n in enumerate(counts.visits.tolist()) if n} == visits
    assert {
        (i, a): n
        for i, row in enumerate(counts.pair_visits.tolist())
        for a, n in enumerate(row)
        if n
    } == pairs
    assert {i: n for i, n in enumerate(counts.first_seen.tolist()) if n >= 0} == first
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


def merge(parts):
    """Merge the counts of environments as if each were in a process of its own."""
    shards, barrier = [None] * len(parts), threading.Barrier(len(parts))

    def merge_one(rank):
        def gather(shard):
            shards[rank] = shard
            barrier.wait()
            gathered = torch.stack(shards)
            barrier.wait()
            return gathered

        parts[rank].merge(gather)

    threads = [threading.Thread(target=merge_one, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def test_visit_counts_of_two_processes_merged_are_those_of_one():
    whole, *parts = (RoomsEnv(n, "small", max_steps=30) for n in (4, 2, 2))
    for env in (whole, *parts):
        env.reset()
    merge(parts)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):  # rollouts
        for _ in range(25):
            actions = torch.randint(5, (4,), generator=generator)
            whole.step(actions)
            for part, own in zip(parts, actions.split(2), strict=True):
                part.step(own)
        merge(parts)
        for part in parts:
            for name in ("visits", "pair_visits", "first_seen", "steps"):
                found, expected = (
                    torch.as_tensor(getattr(e.visit_counts, name)) for e in (part, whole)
                )
                assert torch.equal(found, expected), name
