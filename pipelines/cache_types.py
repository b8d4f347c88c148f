"""The types that the numbers of a cache can have, the most exact first, and what they take. No backend."""

from typing import Literal, get_args

CacheType = Literal["f16", "q8_0", "q4_0"]

CACHE_TYPES: tuple[CacheType, ...] = get_args(CacheType)

_BLOCKS: dict[CacheType, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
"""How many numbers a block has, and its bytes."""


def row_bytes(width: int, of: CacheType) -> int:
    """What so many numbers of a cell take."""
    numbers, nbytes = _BLOCKS[of]
    return -(-width // numbers) * nbytes


def can_hold(head: int, of: CacheType) -> bool:
    """Whether a head of so many numbers is cut into whole blocks."""
    return head % _BLOCKS[of][0] == 0
