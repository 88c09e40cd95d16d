"""How many runs a sweep has at a time."""

from ssedb.sweep.limit import JobLimit
from ssedb.sweep.worker import MemoryUse, free_memory


def test_limit_before_anything_is_measured_is_one():
    assert JobLimit(None, cores=6, runs=8).now == 1


def test_limit_with_much_memory_is_the_number_of_cores_or_of_runs():
    for cores, runs, expected in ((6, 8, 6), (16, 8, 8)):
        limit = JobLimit(None, cores, runs)
        assert limit.fit(MemoryUse(host=2**30, host_free=2**40)) == "1.0 GiB"
        assert limit.now == expected


def test_limit_after_a_larger_run_is_lower_and_stays_so():
    limit = JobLimit(None, cores=6, runs=8)
    limit.fit(MemoryUse(host=10, host_free=1000))
    limit.fit(MemoryUse(host=200, host_free=900))
    assert limit.now == int(1010 / 250)  # of what there was at first
    assert limit.fit(MemoryUse(host=10, host_free=900)) is None
    assert limit.now == 4


def test_limit_by_gpu_memory_counts_every_gpu():
    limit = JobLimit(None, cores=16, runs=16)
    limit.fit(MemoryUse(host=1, host_free=1000, gpu=20, gpu_free=80, gpus=2))
    assert limit.now == 2 * int(100 / 25)


def test_limit_when_memory_ran_out_is_one_less_for_good():
    limit = JobLimit(None, cores=6, runs=8)
    limit.lower()
    assert limit.now == 1  # never none
    limit.fit(MemoryUse(host=1, host_free=1000))
    limit.lower()
    limit.fit(MemoryUse(host=1, host_free=1000))
    assert limit.now == 5


def test_limit_that_is_asked_for_is_obeyed():
    limit = JobLimit(3, cores=16, runs=8)
    assert limit.fit(MemoryUse(host=1000, host_free=1)) is None
    limit.lower()
    assert limit.now == 3


def test_free_memory_is_some():
    assert free_memory() > 0
