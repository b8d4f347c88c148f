"""What a native step is given: tokens of several streams, and behind which of them logits are wanted."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from tenuto.pipelines.embedding import TextTokens


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to feed to a stream that holds `start` tokens, and after how many, the last of them, logits are wanted."""

    stream: int
    start: int
    tokens: Sequence[int] | TextTokens
    wanted: int
    position: int | None = None
    """Of the first of them, where it is another number than `start`."""


class Batch:
    """The native batch over arrays of our own, so that it is filled without a Python step for each token."""

    def __init__(self, size: int) -> None:
        self._token = np.zeros(size, np.int32)
        self._position = np.zeros(size, np.int32)
        self._stream_count = np.ones(size, np.int32)
        self._stream = np.zeros(size, np.int32)
        self._stream_at = self._stream.ctypes.data + np.arange(size, dtype=np.uintp) * self._stream.itemsize
        self._wants_logits = np.zeros(size, np.int8)
        self.native = lib.llama_batch(
            token=_pointer_to(self._token, ctypes.c_int32),
            pos=_pointer_to(self._position, ctypes.c_int32),
            n_seq_id=_pointer_to(self._stream_count, ctypes.c_int32),
            seq_id=ctypes.cast(self._stream_at.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_pointer_to(self._wants_logits, ctypes.c_int8),
        )

    def fill(self, feeds: Sequence[Feed], *, pooled: bool = False) -> None:
        """Hold these feeds. `pooled`: what every token gives is wanted, as of texts that become vectors."""
        begin = 0
        self._wants_logits[:] = pooled
        for feed in feeds:
            end = begin + len(feed.tokens)
            self._token[begin:end] = feed.tokens
            first = feed.start if feed.position is None else feed.position
            self._position[begin:end] = np.arange(first, first + end - begin)
            self._stream[begin:end] = feed.stream
            self._wants_logits[end - feed.wanted : end] = 1
            begin = end
        self.native.n_tokens = begin


def _pointer_to(array: NDArray[np.generic], kind: type[ctypes.c_int32] | type[ctypes.c_int8]) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
