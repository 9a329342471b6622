"""Settings of a whole process, for commands that have one of their own, and what this machine has.

Nothing here is called by what runs inside a process of somebody else's: a notebook keeps its settings.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping

from threadpoolctl import threadpool_limits

_MOST_FILES = 65_536
_SWITCH_SECONDS = 0.0005
_GIVE_BACK_SECONDS = 1.0
_ARENA_MAX, _TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -8, -1, -2, -3
"""By these numbers glibc's `mallopt` knows: how many heaps there may be, from how many free bytes on they go back to
the system, how many more are taken than needed, and from which size on a piece of memory is mapped by itself."""
_KEPT_FREE, _TAKEN_AHEAD, _MAPPED = 64 * 2**20, 4 * 2**20, 8 * 2**20


def raise_open_files() -> None:
    """Let this process have as many open files as the system allows: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tune_server_process() -> None:
    """Let this process have many connections, and keep what they leave behind small."""
    raise_open_files()
    share_heap()
    give_back_memory()
    keep_imports()


def share_heap() -> bool:
    """Have all threads allocate from one heap; False where the system's allocator cannot be told.

    Else each of gRPC's threads gets a heap of its own, and none of them gives back what closed connections leave
    free: 650 handshakes at a time, made anew again and again, took a third more memory.
    """
    return _set_heap({_ARENA_MAX: 1})


def keep_free_memory() -> bool:
    """Keep up to 64 MiB of free memory for what comes next; False where the system's allocator cannot be told.

    Arrays of a block are made and dropped in every step. Else each comes from the system anew, which clears it page by
    page: scoring 16,000 held-out rows took half as long again.
    """
    return _set_heap({_TRIM_THRESHOLD: _KEPT_FREE, _TOP_PAD: _TAKEN_AHEAD, _MMAP_THRESHOLD: _MAPPED})


def _set_heap(values: Mapping[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(number, value) == 1 for number, value in values.items())


def give_back_memory(every: float = _GIVE_BACK_SECONDS) -> bool:
    """Give free memory back to the system from now on, in a thread; False where the system's allocator cannot be told.

    Else only what is free at the end of the heap goes back, and some connection that lives on always lies behind what
    others have left.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False

    def give_back() -> None:
        while True:
            time.sleep(every)
            trim(0)

    threading.Thread(target=give_back, name="give back memory", daemon=True).start()
    return True


def tune_party_process() -> None:
    """Let threads take turns often, as the channel's would else wait for the training's; keep BLAS to one thread.

    More threads of BLAS would spin for work that is not there, on cores that others need.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    threadpool_limits(1, "blas")
    keep_free_memory()
    keep_imports()


def keep_imports() -> None:
    """Have the garbage collector pass over what is there by now, as nothing of it is ever freed.

    A full collection looks at every object of all libraries: 50 to 100 ms, in which all parties wait.
    """
    gc.freeze()


def memory_size() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
