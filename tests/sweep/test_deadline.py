"""The time of a sweep."""

import random
from dataclasses import dataclass

import pytest

from ssedb.sweep import deadline
from ssedb.sweep.deadline import Deadline, Pace


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    return now


def deadline_on_a_gpu(minutes=10):
    """Make the deadline of a sweep of whole runs that share a GPU."""
    end = Deadline(minutes, whole=True)
    end.shared = True
    return end


def finished(clock, kind, steps, seconds, first=0, last=None):
    """Make a run that has just finished; it told of its last step `last` seconds after it began."""
    pace = Pace(kind, steps)
    pace.began = clock[0] - seconds
    pace.first, pace.told = first, clock[0] if last is None else pace.began + last
    return pace


def under_way(clock, kind, left, rate, sharing=1, start_up=0.0):
    """Make a run under way that shares the machine; it has its rate from 20 seconds."""
    steps = left + 20 * rate
    pace, now = Pace(kind, steps), clock[0]
    pace.began = now - 20 - start_up
    pace.note(0, sharing)
    for clock[0], step in ((now - 20, 0), (now, 20 * rate)):
        pace.note(step, sharing)
    assert (pace.left, pace.rate) == (left, rate)
    return pace


def test_deadline_without_minutes_is_never_over(clock):
    ever = Deadline()
    ever.measure(finished(clock, "rnd", 1, 1e9))
    clock[0] = 1e12
    assert not ever.over
    assert ever.allows("rnd", 10**9, [])
    assert ever.allows("rnd", 10**9, [under_way(clock, "rnd", 10**9, 1)])


def test_deadline_allows_what_the_slowest_run_of_the_kind_would_finish(clock):
    end = Deadline(10, whole=True)
    assert end.allows("rnd", 10**9, [])  # nothing is known yet
    end.measure(finished(clock, "rnd", 1000, 200))
    end.measure(finished(clock, "rnd", 1000, 100))
    end.measure(finished(clock, "rnd", 1000, 500, first=900))  # it only went on
    end.measure(finished(clock, "none", 1000, 10))
    for begun in ([], [Pace("db", 10**9)]):  # no run under way has a rate
        assert end.allows("rnd", 3000, begun)
        assert not end.allows("rnd", 3001, begun)
        assert end.allows("none", 60_000, begun)
        assert not end.allows("none", 60_001, begun)
        assert end.allows("db", 3000, begun)  # as the slowest of all
        assert not end.allows("db", 3001, begun)
    clock[0] += 500
    assert end.allows("rnd", 500, [])
    assert not end.allows("rnd", 501, [])
    assert not end.over
    clock[0] += 101
    assert end.over


def test_pace_is_the_rate_of_the_last_minute(clock):
    pace = Pace("rnd", 100_000)
    clock[0] += 30
    pace.note(0, 0)
    assert (pace.first, pace.start_up, pace.rate) == (0, 0, None)
    clock[0] += 20
    pace.note(100, 1)
    assert (pace.start_up, pace.rate) == (50, None)  # the first iteration is start-up
    clock[0] += 4
    pace.note(140, 1)
    assert pace.rate is None
    clock[0] += 1
    pace.note(150, 1)
    assert (pace.rate, pace.left) == (10, 99_850)
    for step in range(350, 1350, 200):
        clock[0] += 10
        pace.note(step, 1)
    assert pace.rate == pytest.approx((1150 - 100) / 55)
    clock[0] += 10
    pace.note(1350, 1)
    assert pace.rate == 20  # what was before the last 60 seconds is forgotten
    assert pace.start_up == 50
    clock[0] += 500
    pace.note(1850, 1)
    assert pace.rate == 1  # at least the last two messages count, however old


def test_rate_falls_with_the_runs_that_come_and_never_rises_with_those_that_go(clock):
    end, pace = deadline_on_a_gpu(), under_way(clock, "rnd", 10, 11, sharing=3)
    others = [Pace("rnd", 10) for _ in range(5)]

    def most(runs):
        """Return the steps of the longest run that may begin as the last of so many."""
        begun = [pace, *others[: runs - 2]]
        return max(steps for steps in range(0, 9000, 10) if end.allows("rnd", steps, begun))

    assert (most(2), most(3), most(6)) == (6000, 6000, 3000)  # 10 steps/s of 3, for 600 seconds
    clock[0] += 10
    pace.note(pace.steps - pace.left + 5, 4)  # a fourth run has begun to step
    assert pace.sharing == 3  # the fewest of the minute count


def test_runs_on_separate_cores_do_not_slow_each_other_down(clock):
    end = Deadline(10, whole=True)
    runs = [under_way(clock, "rnd", 10, 11, sharing=1), *(Pace("rnd", 10) for _ in range(5))]
    assert end.allows("rnd", 6000, runs)
    assert not end.allows("rnd", 6001, runs)


def test_first_run_of_a_gpu_does_not_tell_how_many_fill_it(clock):
    end, alone = deadline_on_a_gpu(), under_way(clock, "rnd", 10, 11, sharing=1)
    assert end.allows("rnd", 10**6, [alone])
    end.measure(finished(clock, "none", 10, 10))
    assert end.allows("rnd", 3000 - 50, [alone])
    assert not end.allows("rnd", 3001, [alone])


def test_run_that_made_no_steps_tells_nothing_of_others(clock):
    end = deadline_on_a_gpu()
    probed = Pace("rnd", 1000)
    clock[0] += 130  # it lacked only its probe
    end.measure(probed)
    clock[0] -= 130
    runs = [under_way(clock, "rnd", 10, 11, 2)]
    assert end.allows("rnd", 6000, runs)
    assert not end.allows("rnd", 6001, runs)


def test_new_run_must_finish_beside_those_under_way(clock):
    end = deadline_on_a_gpu()  # 600 s
    runs = [under_way(clock, "rnd", 10, 11, 2), under_way(clock, "db", 10, 22, 2)]
    assert end.allows("rnd", 4000, runs)  # 11 steps per second of 2 runs, among 3, with the margin
    assert not end.allows("rnd", 4001, runs)
    assert end.allows("db", 8000, runs)
    assert not end.allows("db", 8001, runs)
    assert end.allows("none", 4000, runs)  # as the slowest under way
    assert not end.allows("none", 4001, runs)
    end.measure(finished(clock, "none", 1000, 50))
    assert end.allows("none", 12_000, runs)  # its kind has finished
    assert not end.allows("none", 12_001, runs)
    end.measure(finished(clock, "rnd", 1000, 500))
    assert end.allows("rnd", 4000, runs)  # the runs under way know better


def test_new_run_takes_the_longest_start_up_and_ending_besides(clock):
    end = deadline_on_a_gpu()
    end.measure(finished(clock, "none", 10, 100, last=70))
    runs = [under_way(clock, "rnd", 10, 11, 1, start_up=50)]
    assert end.allows("rnd", 5 * 520, runs)  # 600 - 50 - 30 seconds
    assert not end.allows("rnd", 5 * 520 + 1, runs)
    slow = finished(clock, "none", 10, 100)
    slow.start_up = 90
    end.measure(slow)
    assert end.allows("rnd", 5 * 480, runs)
    assert not end.allows("rnd", 5 * 480 + 1, runs)


def test_runs_under_way_must_finish_beside_the_new_one(clock):
    end = deadline_on_a_gpu()
    end.measure(finished(clock, "none", 100, 30, last=0))  # every run needs 30 seconds to end
    assert end.allows("rnd", 10, [under_way(clock, "rnd", 5 * 570, 11)])
    assert not end.allows("rnd", 10, [under_way(clock, "rnd", 5 * 570 + 1, 11)])
    runs = [under_way(clock, "rnd", 10, 22, 2), Pace("rnd", 7600)]
    assert end.allows("rnd", 10, runs)  # 20 steps per second of 2 runs, among 3, for 570 seconds
    runs[1].left += 1
    assert not end.allows("rnd", 10, runs)


def test_run_that_cannot_finish_anyway_holds_back_no_other(clock):
    end = deadline_on_a_gpu()
    assert not end.allows("rnd", 10, [under_way(clock, "rnd", 6600, 10, 2)])
    assert end.allows("rnd", 10, [under_way(clock, "rnd", 6601, 10, 2)])


@dataclass
class Simulated:
    """A run on a simulated machine."""

    pace: Pace
    cost: float
    start_up: int
    ending: int = 3
    at: float = 0.0


STEPS, ITERATION = 1000, 20
KINDS = {"none": 0.1, "rnd": 1.0, "icm": 1.2, "db": 1.6, "ensemble": 2.2}
RATE = STEPS / 600 * KINDS["ensemble"]
"""Steps per second of a run of cost 1 among 13, so that a run of the slowest kind takes 600 s."""


def shared_gpu(runs):
    """Return the rate of a run of cost 1 where a number of runs share a GPU."""
    return 13 * RATE / runs


def large_gpu(runs):
    """Return the rate of a run of cost 1 where six runs together fill a GPU."""
    return 13 * RATE / max(6, runs)


def separate_cores(runs):
    """Return the rate of a run of cost 1 where each has a core to itself."""
    return RATE


def simulate(clock, machine, minutes, kinds, live, start_up=15, first_alone=0):
    """Do a sweep, a second at a time; return the runs begun and finished, and the idle share.

    Without `live`, runs are begun by the speed of those that have finished. For `first_alone`
    seconds, one run at a time shows how much memory a run needs.
    """
    end, waiting, runs = Deadline(minutes, whole=True), list(kinds), []
    end.shared = machine is not separate_cores
    begun = finished = idle = 0
    for second in range(60 * minutes):
        paces = [run.pace for run in runs]
        while len(runs) < (1 if second < first_alone else 13):
            kind = next((k for k in waiting if end.allows(k, STEPS, paces if live else [])), None)
            if kind is None:
                break
            waiting.remove(kind)
            runs.append(Simulated(Pace(kind, STEPS), KINDS[kind], start_up))
            paces.append(runs[-1].pace)
            begun += 1
        clock[0] += 1
        for run in runs:
            run.start_up -= 1
            if run.start_up == 0:
                run.pace.note(0, 1)
        at_work = [run for run in runs if run.start_up <= 0 and run.at < STEPS]
        idle += not at_work
        for run in at_work:
            run.at = min(STEPS, run.at + machine(len(at_work)) / run.cost)
            step = int(run.at) // ITERATION * ITERATION
            if step > STEPS - run.pace.left:
                run.pace.note(step, sum(other.pace.first is not None for other in runs))
        for run in [run for run in runs if run.at == STEPS and run not in at_work]:
            run.ending -= 1
            if run.ending == 0:
                runs.remove(run)
                end.measure(run.pace)
                finished += 1
    return begun, finished, idle / (60 * minutes)


def mixed(rest):
    """Return the kinds of 20 runs of all kinds in a random order, and of 80 more behind them."""
    first = 4 * list(KINDS)
    random.Random(1).shuffle(first)
    return first + 80 // len(rest) * rest


WAITING = {"one slow kind": ["ensemble"], "slow kinds": ["ensemble", "db"], "all": list(KINDS)}


@pytest.mark.parametrize("minutes", [22, 28, 34, 40])
@pytest.mark.parametrize("rest", WAITING)
def test_sweep_of_whole_runs_finishes_what_it_begins(clock, rest, minutes):
    for machine in (shared_gpu, separate_cores):
        begun, finished, _ = simulate(clock, machine, minutes, mixed(WAITING[rest]), live=True)
        assert begun == finished > 13


@pytest.mark.parametrize("rest", ["one slow kind", "slow kinds"])
def test_sweep_of_whole_runs_keeps_a_shared_gpu_at_work_to_the_end(clock, rest):
    sweeps = {
        live: [simulate(clock, shared_gpu, m, mixed(WAITING[rest]), live) for m in (22, 28, 34, 40)]
        for live in (True, False)
    }
    assert all(new[1] >= old[1] for new, old in zip(sweeps[True], sweeps[False], strict=True))
    finished, before = (sum(sweep[1] for sweep in sweeps[live]) for live in (True, False))
    assert finished > 1.05 * before
    assert max(sweep[2] for sweep in sweeps[True]) < 0.1


def test_sweep_of_whole_runs_goes_on_beside_one_that_cannot_finish(clock, monkeypatch):
    waiting = ["hopeless", *mixed(["db"])]
    monkeypatch.setitem(KINDS, "hopeless", 6.0)
    begun, finished, _ = simulate(clock, separate_cores, 22, waiting, live=True)
    assert begun - 1 == finished > 26


@pytest.mark.parametrize("machine", [large_gpu, separate_cores])
def test_sweep_of_whole_runs_begins_many_after_one_that_shows_the_memory(clock, machine):
    begun, finished, _ = simulate(clock, machine, 22, mixed(["db"]), live=True, first_alone=60)
    assert begun == finished > 26


def test_sweep_of_whole_runs_keeps_separate_cores_at_work(clock):
    for minutes in (22, 28, 34, 40):
        new, old = (
            simulate(clock, separate_cores, minutes, mixed(["ensemble"]), live)[1]
            for live in (True, False)
        )
        assert new > 0.9 * old
