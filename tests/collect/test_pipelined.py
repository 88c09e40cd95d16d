"""Pools of environments, each of which goes on as it answers, and their threads."""

import copy
import itertools
import os
import sys
import threading
import time

import numpy as np
import pytest
import torch

import ssedb
from ssedb.collect import pipelined
from ssedb.collect.collector import Collector
from ssedb.collect.pipelined import PipelinedCollector, low_priority_threads
from ssedb.engine.base import Engine
from ssedb.envs import timeout
from ssedb.envs.base import HostEnv, HostStep
from ssedb.envs.noisy import NoisyEnv
from ssedb.networks import ActorCritic
from ssedb.noises import make_noise, noises_over
from tests.toy import Grid

CPU = torch.device("cpu")
NAMES = ("frames", "starts", "actions", "rewards", "dones", "log_probs", "values", "episodes")


class Board(HostEnv):
    """The squares of `Grid` in 84x84 pixels, stepped on the host; it may take a while."""

    device, num_actions = CPU, 4

    def __init__(self, num_envs, seed, haste=None, episode=5):
        self.num_envs, self.grid = num_envs, Grid(num_envs, seed=seed, episode=episode)
        delays = np.random.default_rng((seed, haste or 0)).uniform(0, 0.004, 1000)
        self.delays, self.order = itertools.cycle(delays if haste is not None else [0.0]), []

    def reset(self):
        return self.large(self.grid.reset())

    def large(self, frames):
        return torch.nn.functional.pad(frames, (0, 48, 0, 48))

    def send(self, actions):
        self.actions = torch.from_numpy(actions.copy())

    def recv(self):
        time.sleep(next(self.delays))
        step = self.grid.step(self.actions)
        self.order.append(time.perf_counter())
        return HostStep(self.large(step.frames).numpy(), step.rewards.numpy(), step.dones.numpy())


def pools_of(*boards):
    return [NoisyEnv(board, make_noise("none")) for board in boards]


def policy():
    torch.manual_seed(0)
    return ActorCritic((4, 84, 84), 4, (4, 4, 4), 8, ["relu"])


def copy_of(rollout):
    return {name: getattr(rollout, name).clone() for name in NAMES}


def test_pipelined_numbers_do_not_depend_on_which_pool_answers_first():
    rollouts, orders, agent = [], [], policy()
    for haste in (0, 1):
        boards = [Board(2, seed, haste) for seed in (1, 2, 3)]
        steps = []
        torch.manual_seed(1)
        collector = PipelinedCollector(pools_of(*boards), 12, Engine(CPU), steps.append)
        rollouts.append(copy_of(collector.collect(agent.act)))
        assert steps == list(range(12))
        orders.append(sorted((moment, i) for i, b in enumerate(boards) for moment in b.order))
        collector.close()
    assert [i for _, i in orders[0]] != [i for _, i in orders[1]]
    for name in NAMES:
        assert torch.equal(rollouts[0][name], rollouts[1][name]), name
    assert len(rollouts[0]["actions"].unique()) == 4


def test_pipelined_actions_are_each_drawn_with_a_number_of_their_own():
    agent = policy()
    agent.make_uniform()  # so that the smallest number alone decides
    collector, drawn = PipelinedCollector(pools_of(Board(2, 1), Board(2, 2)), 50, Engine(CPU)), []
    for _ in range(2):
        rollout = collector.collect(agent.act)
        assert torch.equal(rollout.actions, collector.draws[:-1, 0].argmin(-1))
        drawn.append(collector.draws.clone())
    everything = torch.stack(drawn)
    assert len(everything.unique()) > 0.99 * everything.numel()
    assert everything.mean() == pytest.approx(1, abs=0.1)


def act_by_cell(obs, draws=None):
    newest = obs[:, -1]
    cell = newest.amax(2).argmax(1) // 6 * 6 + newest.amax(1).argmax(1) // 6
    return cell % 4, cell.float(), -cell.float()


@pytest.mark.parametrize("noise", noises_over("images"))
def test_pipelined_pools_collect_what_each_collects_alone(noise):
    pools = [NoisyEnv(Board(4, seed), make_noise(noise), seed=seed) for seed in (1, 2)]
    collector = PipelinedCollector(pools, 7, Engine(CPU))
    for _ in range(2):
        rollout = collector.collect(act_by_cell)
    for p, seed in enumerate((1, 2)):  # environment 2 i + p is the i-th of pool p
        alone = Collector(NoisyEnv(Board(4, seed), make_noise(noise), seed=seed), 7)
        for _ in range(2):
            expected = alone.collect(act_by_cell)
        for name in set(NAMES) - {"episodes"}:
            assert torch.equal(getattr(rollout, name)[:, p::2], getattr(expected, name)), name


@pytest.mark.parametrize(("noise", "fidelity"), [("sticky", "paper"), ("random-box", "released")])
def test_pipelined_pools_of_emulators_collect_the_same_again(noise, fidelity):
    agent, rollouts = policy(), []
    for _ in range(2):
        pools = [
            ssedb.make_env("breakout", 2, noise=noise, fidelity=fidelity, seed=seed, noop_max=2)
            for seed in (1, 2)
        ]
        torch.manual_seed(1)
        collector = PipelinedCollector(pools, 40, Engine(CPU))
        rollouts.append([copy_of(collector.collect(agent.act)) for _ in range(2)])
        collector.close()
    for first, second in zip(*rollouts, strict=True):
        for name in NAMES:
            assert torch.equal(first[name], second[name]), name


def test_pipelined_pool_that_is_stuck_times_out(monkeypatch):
    monkeypatch.setattr(timeout, "TIME_OUT", 0.5)
    going_on, boards = threading.Event(), [Board(2, 1), Board(2, 2)]
    collector = PipelinedCollector(pools_of(*boards), 8, Engine(CPU))
    collector.collect(act_by_cell)
    monkeypatch.setattr(boards[1], "recv", going_on.wait)
    with pytest.raises(ssedb.TrainingError, match=r"the environments have not answered for 0\.5 s"):
        collector.collect(act_by_cell)
    collector.close()
    going_on.set()


def test_pipelined_error_on_a_worker_thread_is_raised_by_collect(monkeypatch):
    boards = [Board(2, 1), Board(2, 2)]
    collector = PipelinedCollector(pools_of(*boards), 8, Engine(CPU))

    def fail():
        raise RuntimeError("the cartridge is gone")

    monkeypatch.setattr(boards[1], "recv", fail)
    with pytest.raises(RuntimeError, match="the cartridge is gone"):
        collector.collect(act_by_cell)
    collector.close()


on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux lets a thread be scheduled on its own"
)


@on_linux
@pytest.mark.parametrize("cores", [[0, 1, 2, 3], [0, 2, 3], [5]])
def test_low_priority_threads_run_when_no_other_does_each_on_two_cores(cores, monkeypatch):
    places, bind, allowed = {}, os.sched_setaffinity, os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cores))
    monkeypatch.setattr(
        os,
        "sched_setaffinity",
        lambda thread, to: (places.update({thread: to}), bind(thread, allowed)),
    )
    monkeypatch.setattr(pipelined, "_next_pair", itertools.count())
    done, own = threading.Event(), os.sched_getscheduler(threading.get_native_id())
    made = [threading.Thread(target=done.wait, daemon=True) for _ in range(2 * len(cores))]
    for some in (made[: len(cores)], made[len(cores) :]):  # two pools
        with low_priority_threads():
            for thread in some:
                thread.start()
    assert {os.sched_getscheduler(thread.native_id) for thread in made} == {os.SCHED_IDLE}
    assert os.sched_getscheduler(threading.get_native_id()) == own
    done.set()
    assert set(places) == {thread.native_id for thread in made}
    assert all(len(to) == min(2, len(cores)) for to in places.values())
    load = [sum(core in to for to in places.values()) for core in cores]
    assert min(load) >= 2, "the work is spread over all cores"
    assert len(cores) % 2 or min(load) == max(load), "and evenly, where pairs come out even"


@on_linux
@pytest.mark.parametrize("call", ["sched_setaffinity", "sched_setscheduler", "setpriority"])
def test_low_priority_threads_survive_a_sandbox_that_refuses(call, monkeypatch):
    def refuse(*args):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, call, refuse)
    if call == "setpriority":  # what is tried when the scheduler stays as it is
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
    done = threading.Event()
    with low_priority_threads():
        threading.Thread(target=done.wait, daemon=True).start()
    done.set()


class SavedBoard(Board):
    """A board whose state can be saved."""

    restorable = True

    def state_dict(self):
        return self.grid.state_dict()

    def load_state_dict(self, state):
        self.grid.load_state_dict(state)


def test_pipelined_state_continues_the_episodes_of_every_pool():
    agent = policy()
    first = PipelinedCollector(pools_of(SavedBoard(2, 1), SavedBoard(2, 2)), 12, Engine(CPU))
    first.collect(agent.act)
    state, random_state = copy.deepcopy(first.state_dict()), torch.get_rng_state()
    expected = copy_of(first.collect(agent.act))
    again = PipelinedCollector(pools_of(SavedBoard(2, 7), SavedBoard(2, 8)), 12, Engine(CPU))
    again.load_state_dict(state)
    assert again.continued
    torch.set_rng_state(random_state)
    found = copy_of(again.collect(agent.act))
    assert all(torch.equal(found[name], expected[name]) for name in NAMES)
    one_pool = PipelinedCollector(pools_of(SavedBoard(4, 9)), 12, Engine(CPU))
    plain = Collector(pools_of(SavedBoard(4, 9))[0], 12)
    for other in (one_pool, plain):  # as on another device
        other.load_state_dict(state)
        assert not other.continued
    for collector in (first, again, one_pool, plain):
        collector.close()
