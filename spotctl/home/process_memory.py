"""The memory of this process: a ceiling, and a pause of Python's cyclic garbage collection."""

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATUS = Path("/proc/self/statm")
_DATA_FIELD = 5
_THREAD_STACK_BYTES = 16 << 20
"""The most that a thread reserves; reserved memory counts, used or not."""


@contextmanager
def memory_ceiling(more_bytes: int) -> Iterator[None]:
    """Within the block, getting more memory than this in addition to today's raises MemoryError.

    Only Linux says how much a process has, so elsewhere there is no ceiling.
    """
    try:
        present = int(_STATUS.read_text().split()[_DATA_FIELD]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        yield
        return

    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    ceiling = present + more_bytes + (os.cpu_count() or 1) * _THREAD_STACK_BYTES
    bounds = [bound for bound in (ceiling, before, most) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), most))

    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collecting would visit the values again and again, and take up to as long as reading them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
