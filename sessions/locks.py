"""A lock for each of any number of keys. No I/O."""

from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import anyio

K = TypeVar("K", bound=Hashable)


class Locks(Generic[K]):
    """Event-loop thread only."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[K, anyio.Lock] = WeakValueDictionary()

    @property
    def busy(self) -> int:
        """How many are held."""
        return sum(lock.locked() for lock in self._locks.values())

    def of(self, key: K) -> anyio.Lock:
        """The lock of a key, one object while anybody holds it or waits for it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = anyio.Lock()
        return lock
