"""The TF32 switch of torch, and functions that do not follow it."""

import threading

import torch

from ssedb.float32 import exact, tf32


def test_exact_functions_return_what_they_compute():
    @exact
    def product(a, b):
        """A product."""
        return a @ b

    assert product.__doc__ == "A product."
    assert product(torch.eye(2), torch.ones(2)).tolist() == [1, 1]


def test_float32_switch_in_two_threads_is_set_by_one_at_a_time():
    flags = torch.backends.cuda.matmul
    before, entered = flags.allow_tf32, threading.Event()

    def other():
        with tf32(False):
            entered.set()

    with tf32(True):
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2)
        assert flags.allow_tf32
    assert entered.wait(10)
    thread.join()
    assert flags.allow_tf32 == before
