"""The TF32 switch of torch."""

import threading

import torch

from ssedb.engine.precision import tf32


def test_tf32_switch_in_two_threads_is_set_by_one_at_a_time():
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
