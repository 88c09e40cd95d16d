"""A worker process of a sweep: runs come through a pipe, messages go back."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ssedb.runs.files import refuse_links, writing
from ssedb.runs.folder import SWEEP_LOG

CUDA_CONTEXT = 600 * 2**20
"""Bytes that a process takes of a GPU besides its tensors."""
MEASURED_AT = 3
"""Updates after which a run has taken all the memory it needs."""
GRACE = 60.0
"""Seconds for a worker to save and end when it is asked to."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory that a run takes and that is free beside it, in bytes; 0 without a GPU."""

    host: int
    host_free: int
    gpu: int = 0
    gpu_free: int = 0
    gpus: int = 0


def work(pipe: Connection, number: int, device: str, threads: int, alone: bool) -> None:
    """Execute one run after the other until the pipe closes.

    Args:
        pipe: gives runs and takes messages.
        number: counts the workers, to deal out the GPUs.
        device: where to train.
        threads: threads of a run.
        alone: whether no other worker is at work meanwhile.
    """
    os.setpgid(0, 0)  # Ctrl-C goes to the sweep alone, which then asks each worker once
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # the sweep has blocked it
    end_with_parent()
    import torch

    from ssedb.engine.host import sleep_while_waiting

    if device != "cpu" and not alone:
        sleep_while_waiting()
    torch.set_num_threads(threads)
    if device == "auto" and torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    while True:
        try:
            run, probe = pipe.recv()
        except (EOFError, OSError):
            return
        if not _execute_and_tell(pipe, run, probe, device):
            return


def _execute_and_tell(pipe: Connection, run: Any, probe: bool, device: str) -> bool:
    """Execute one run; return whether this process is fit for another."""
    from ssedb.sweep.execute import Steps, describe, execute, may_succeed_on_retry

    def tell(*message: Any) -> None:
        with contextlib.suppress(OSError):  # the sweep is gone: the run still saves before it ends
            pipe.send(message)

    class Telling(Steps):
        updates = 0

        def log(self, row: dict[str, Any]) -> None:
            super().log(row)
            self.updates += 1
            if self.updates == MEASURED_AT:
                tell("memory", memory_of_this_process(device))

    try:
        told = Telling(tell)
        with output_to(run.folder / SWEEP_LOG):
            finished = execute(run, probe, device, told)
        if told.updates < MEASURED_AT:
            tell("memory", memory_of_this_process(device))
    except Exception as error:
        tell("failed", describe(error), may_succeed_on_retry(error))
        return "out of memory" not in str(error)  # a new process begins with a clean memory
    finally:
        _free_memory(device)
    tell("finished" if finished else "stopped")
    return finished


def _free_memory(device: str) -> None:
    """Free what a run leaves: its parts refer to each other in circles."""
    import torch

    gc.collect()
    if (gpu := _gpu(device)) is not None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(gpu)


def _gpu(device: str) -> int | None:
    """Return the GPU that the runs of this process are on, if any."""
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return None
    index = None if device == "auto" else torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def end_with_parent() -> None:
    """Let this process end, or save and end, when its parent has died."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Append both outputs of this process to a file, and the traceback of an error in the block.

    A disk that is too full for them changes nothing else; a file that cannot be opened is a
    TrainingError, one that is a link is a ConfigError.
    """
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    refuse_links(path.parent, path.name)
    with writing(path), open(path, "a", encoding="utf-8") as file:
        kept = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):  # past the buffer, which would keep what it cannot write
            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
        raise
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        for target, copy in enumerate(kept, 1):
            os.dup2(copy, target)
            os.close(copy)


def memory_of_this_process(device: str) -> MemoryUse:
    """Measure the memory of this process at its highest."""
    unit = 1 if sys.platform == "darwin" else 1024
    host, free = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, free_memory()
    if (gpu := _gpu(device)) is None:
        return MemoryUse(host, free)
    import torch

    taken = torch.cuda.max_memory_reserved(gpu) + CUDA_CONTEXT
    gpus = torch.cuda.device_count() if device == "auto" else 1
    return MemoryUse(host, free, taken, torch.cuda.mem_get_info(gpu)[0], gpus)


def free_memory() -> int:
    """Return the bytes that are free: the machine's, or what is left of the container's limit."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):  # no Linux: half of the machine, as a guess
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        cache = dict(line.split() for line in (group / "memory.stat").read_text().splitlines()).get(
            "file", "0"
        )
        used = int((group / "memory.current").read_text()) - int(cache)
        free = min(
            free, int((group / "memory.max").read_text()) - used
        )  # "max" is no number: no limit
    return free


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
