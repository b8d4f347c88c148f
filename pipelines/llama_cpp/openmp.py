"""How the native library's threads wait for each other. Loads the library, so it comes before whatever else does."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

# About a tenth of a millisecond. A barrier between two running threads takes less; one that takes longer waits for a
# thread that another process keeps from its core, and to spin then takes the core from whoever would give it back.
_SPINS = 2000
_SPIN_COUNT, _WAIT_POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"


def wait_policy() -> str:
    """How threads wait at a barrier, in words."""
    for name in (_SPIN_COUNT, _WAIT_POLICY):
        if name in os.environ:
            return f"as {name}={os.environ[name]} says"
    return f"spin {_SPINS} times, then sleep"


@contextmanager
def _short_waits() -> Iterator[None]:
    """GNU's OpenMP reads its settings once, as it is loaded; programs that are started later get none of ours."""
    chosen = _SPIN_COUNT not in os.environ and _WAIT_POLICY not in os.environ
    if chosen:
        os.environ[_SPIN_COUNT] = str(_SPINS)
    try:
        yield
    finally:
        if chosen:
            del os.environ[_SPIN_COUNT]


with _short_waits():
    import llama_cpp  # noqa: F401 -- for its effect
