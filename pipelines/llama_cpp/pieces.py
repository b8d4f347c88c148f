"""Pieces of images in a native cache: how they are fed, and the positions that they take. Engine thread only.

A piece of some models takes fewer positions than it has tokens. A cache is cut and gone on with by positions, and
everybody else counts tokens.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from tenuto.pipelines.images import Embeddings

Extents = tuple[tuple[int, int, int], ...]
"""Of the pieces in a stream that take fewer positions than tokens: where each begins and ends, and its positions."""


def position(extents: Extents, tokens: int) -> int | None:
    """The position after so many tokens of a stream; None in the middle of such a piece."""
    found = tokens
    for begin, end, extent in extents:
        if tokens >= end:
            found -= end - begin - extent
        elif tokens > begin:
            return None
    return found


def up_to(extents: Extents, tokens: int) -> Extents:
    """Those among the first so many tokens."""
    return tuple(one for one in extents if one[1] <= tokens)


class PieceBatch:
    """A native batch of embeddings, which holds no tokens beside them."""

    def __init__(
        self, rows: NDArray[np.float32], places: NDArray[np.int32], stream: int, *, wants_logits: bool
    ) -> None:
        count = len(rows)
        self._rows = np.ascontiguousarray(rows)
        self._places = np.ascontiguousarray(places)  # one dimension after the other
        self._streams = np.full(1, stream, np.int32)
        self._stream_at = np.full(count, self._streams.ctypes.data, np.uintp)
        self._stream_count = np.ones(count, np.int32)
        self._wants_logits = np.zeros(count, np.int8)
        self._wants_logits[-1] = wants_logits
        self.native = lib.llama_batch(
            n_tokens=count,
            embd=_at(self._rows, ctypes.c_float),
            pos=_at(self._places, ctypes.c_int32),
            n_seq_id=_at(self._stream_count, ctypes.c_int32),
            seq_id=ctypes.cast(self._stream_at.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_at(self._wants_logits, ctypes.c_int8),
        )


def batches(made: Embeddings, stream: int, first: int, most: int, *, wants_logits: bool) -> Iterator[PieceBatch]:
    """A piece that begins at position `first`, in batches of at most so many rows."""
    count = len(made.rows)
    places = np.arange(first, first + count, dtype=np.int32)[np.newaxis]
    if made.places is not None:
        places = made.places.starting(first)
    for begin in range(0, count, most):
        end = min(begin + most, count)
        is_last = wants_logits and end == count
        yield PieceBatch(made.rows[begin:end], places[:, begin:end], stream, wants_logits=is_last)


def _at(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
