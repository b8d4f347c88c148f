"""How much freed memory the C library keeps for later: little, in few places."""

import ctypes
import os
import sys

_MOST_HEAPS = 2
_ALONE_BYTES = 2 << 20
"""What is of this size or more stands alone and is given back as soon as it is freed. It is more than the logits of a
token in the largest vocabularies: giving those back and taking them again for each token would be felt."""
_SPARE_BYTES = 4 << 20
"""So much may be free at the end of each heap."""

# The numbers are those of <malloc.h>; a user may have set each by one of two variables.
_SETTINGS = (
    (-8, _MOST_HEAPS, "MALLOC_ARENA_MAX", "glibc.malloc.arena_max"),
    (-3, _ALONE_BYTES, "MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold"),
    (-1, _SPARE_BYTES, "MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold"),
)


def keep_little() -> None:
    """Let freed memory go back to the system, where the C library is glibc. Before there are threads.

    By itself glibc takes the size of whatever large block is freed as the size from which blocks stand alone, up to
    32 MiB, and twice that as what each heap may keep; and it makes eight heaps a core for threads that meet in one. So
    a few large requests, read in threads, let a server hold hundreds of megabytes of nothing from then on.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for parameter, value, variable, tunable in _SETTINGS:
        if variable not in os.environ and tunable not in tunables:
            library.mallopt(parameter, value)
