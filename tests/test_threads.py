"""A worker thread goes with its owner."""

import threading
import time
import weakref

import pytest
import torch

from ssedb.threads import WorkerThread


def wait_until(done):
    limit = time.monotonic() + 5
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_worker_thread_keeps_nothing_alive_and_ends_with_its_owner():
    class Task:
        def __call__(self):
            return threading.current_thread()

    worker, task = WorkerThread(torch.device("cpu")), Task()
    thread, left = worker.submit(task).result(5), weakref.ref(task)
    del task
    wait_until(lambda: left() is None)
    assert thread.is_alive()
    del worker
    wait_until(lambda: not thread.is_alive())


def test_worker_thread_that_is_closed_takes_no_function():
    worker = WorkerThread()
    future = worker.submit(threading.current_thread)
    worker.close()
    worker.close()
    wait_until(lambda: not future.result(5).is_alive())
    with pytest.raises(RuntimeError, match="has been closed"):
        worker.submit(threading.current_thread)


def test_worker_thread_error_is_raised_where_the_result_is_read():
    future = WorkerThread(torch.device("cpu")).submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        future.result(5)
