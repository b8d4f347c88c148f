"""The native cache and step. An invalid call would end the process, so each is refused with ValueError first.

A step alone is not looked at here: its backend has held the rows to `check_rows`. A context has streams: fixed rooms of
cells, one sequence in each. It keeps the length of every stream by itself. A stream whose length is None is undefined,
after a step that failed; it can only be cleared. Engine thread only.
"""

import ctypes
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from tenuto.errors import GenerationFailed, ModelLoadFailed
from tenuto.pipelines.cache_types import CacheType
from tenuto.pipelines.fit import PLAIN_TOKENS
from tenuto.pipelines.images import Embeddings
from tenuto.pipelines.llama_cpp import pieces
from tenuto.pipelines.llama_cpp.batch import Batch, Feed
from tenuto.pipelines.llama_cpp.lora import LlamaAdapter
from tenuto.pipelines.llama_cpp.native import Model, failure, log_tail
from tenuto.pipelines.llama_cpp.pieces import Extents, PieceBatch
from tenuto.pipelines.llama_cpp.streams import for_streams
from tenuto.pipelines.llama_cpp.team import Teams
from tenuto.pipelines.llama_cpp.timed_step import timed_decode

# The library allocates what it keeps of each cell without a check, beside the cache itself.
_MOST_TOKENS = 1 << 26

_TYPES: dict[CacheType, int] = {"f16": lib.GGML_TYPE_F16, "q8_0": lib.GGML_TYPE_Q8_0, "q4_0": lib.GGML_TYPE_Q4_0}

Logits = NDArray[np.float32]
StateBytes = NDArray[np.uint8]


class Context:
    """A model's cache of `streams` rooms with `cells` each, and the batch that its steps go through.

    Raises:
        ModelLoadFailed: there is no memory for it.
    """

    def __init__(
        self,
        model: Model,
        *,
        streams: int,
        cells: int,
        batch_tokens: int,
        threads: int,
        drafts: int = 0,
        is_plain: bool = False,
        cache_type: CacheType = "f16",
        adapter: LlamaAdapter | None = None,
    ) -> None:
        if not 1 <= streams <= lib.llama_max_parallel_sequences() or cells < 1 or batch_tokens < streams or threads < 1:
            raise ValueError(f"no context of {streams} x {cells}, {batch_tokens} a step, {threads} threads")
        if streams * cells > _MOST_TOKENS:
            raise ModelLoadFailed(f"no cache of {streams} x {cells} tokens: {_MOST_TOKENS} are the most")
        self._model = model
        self.cells, self.batch_tokens = cells, batch_tokens
        self._lengths: list[int | None] = [0] * streams
        self._extents: list[Extents] = [()] * streams
        self._vocabulary = model.vocabulary
        with model.changing:
            self._pointer: Any = _open(
                model,
                streams,
                cells,
                batch_tokens,
                threads,
                _TYPES[cache_type],
                outputs=streams + drafts,
                is_plain=is_plain,
            )
            if adapter is not None:
                adapter.apply_to(self._pointer)
        self._adapter = adapter
        self._is_changed = True
        """Whether the library plans the next step anew, for which it looks at all adapters."""
        self._memory = lib.llama_get_memory(self._pointer)
        self._batch = Batch(batch_tokens)
        self._outputs = 0
        self._teams = Teams(threads)

    @property
    def threads(self) -> int:
        """How many threads the next step gets that decodes for one sequence."""
        return self._teams.threads()

    def length(self, stream: int) -> int:
        """How many tokens a stream holds.

        Raises:
            ValueError: there is no such stream, or its state is undefined.
        """
        if not 0 <= stream < len(self._lengths):
            raise ValueError(f"there is no slot {stream}")
        length = self._lengths[stream]
        if length is None:
            raise ValueError("the slot is undefined after a failed step; release it first")
        return length

    def decode(self, feeds: Sequence[Feed]) -> None:
        """Run one step, which is valid; it may still be under way when this returns.

        Raises:
            GenerationFailed: the step failed; its streams are undefined.
        """
        self._batch.fill([self._placed(feed) for feed in feeds])
        self._outputs = 0
        for feed in feeds:
            self._lengths[feed.stream] = None
        self._step(self._batch)
        for feed in feeds:
            self._lengths[feed.stream] = feed.start + len(feed.tokens)
        self._outputs = sum(feed.wanted for feed in feeds)

    def decode_piece(self, stream: int, made: Embeddings, *, wants_logits: bool) -> None:
        """Feed a piece of an image to a stream, which has room for it, in as many steps as its rows need.

        Raises:
            GenerationFailed: a step failed; the stream is undefined.
        """
        begin, extents = self.length(stream), self._extents[stream]
        first = pieces.position(extents, begin)
        assert first is not None, "a stream ends with a whole piece"
        self._outputs, self._lengths[stream] = 0, None
        if made.attends_all:
            self._attend(is_causal=False)
        try:
            for batch in pieces.batches(made, stream, first, self.batch_tokens, wants_logits=wants_logits):
                self._step(batch)
                lib.llama_synchronize(self._pointer)  # what is fed is freed
        finally:
            if made.attends_all:
                self._attend(is_causal=True)
        self._lengths[stream] = end = begin + len(made.rows)
        if made.extent != len(made.rows):
            self._extents[stream] = (*extents, (begin, end, made.extent))
        self._outputs = int(wants_logits)

    def _placed(self, feed: Feed) -> Feed:
        extents = self._extents[feed.stream]
        return replace(feed, position=pieces.position(extents, feed.start)) if extents else feed

    def _attend(self, *, is_causal: bool) -> None:
        lib.llama_set_causal_attn(self._pointer, is_causal)
        self._is_changed = True

    def _step(self, batch: "Batch | PieceBatch") -> None:
        with self._model.changing if self._is_changed else nullcontext():
            status = timed_decode(self._pointer, batch.native, self._teams, self._model)
        self._is_changed = False
        if status == 1:
            raise GenerationFailed("the cache has no room for the step")
        if status != 0:
            raise GenerationFailed(f"llama_decode failed with {status}: {log_tail()}")

    def wait(self) -> None:
        """Wait for the step that is under way."""
        lib.llama_synchronize(self._pointer)

    def logits(self) -> Logits:
        """Wait for the step and give the rows that each feed wanted, in order; valid until the next step."""
        if not self._outputs:
            lib.llama_synchronize(self._pointer)
            return np.empty((0, self._vocabulary), np.float32)
        rows = lib.llama_get_logits(self._pointer)
        return np.ctypeslib.as_array(rows, shape=(self._outputs, self._vocabulary))

    def sample(self, chain: Any, feed_end: int) -> int:
        """Sample with a native chain from the logits of the token at `feed_end` in the batch, and advance the chain."""
        return int(lib.llama_sampler_sample(chain, self._pointer, feed_end))

    def clear(self, stream: int) -> None:
        """Empty a stream, whatever state it is in."""
        if not 0 <= stream < len(self._lengths):
            raise ValueError(f"there is no slot {stream}")
        lib.llama_memory_seq_rm(self._memory, stream, -1, -1)
        self._lengths[stream], self._extents[stream] = 0, ()

    def cut(self, stream: int, tokens: int) -> bool:
        """Keep the first `tokens` of a stream. False, and nothing changed, where this kind of cache cannot."""
        if not 0 <= tokens <= self.length(stream):
            raise ValueError(f"a slot of {self.length(stream)} tokens cannot be cut to {tokens}")
        if tokens == 0:
            self.clear(stream)
        elif tokens < self.length(stream):
            position = pieces.position(self._extents[stream], tokens)
            if position is None or not lib.llama_memory_seq_rm(self._memory, stream, position, -1):
                return False
            self._lengths[stream], self._extents[stream] = tokens, pieces.up_to(self._extents[stream], tokens)
        return True

    def save(self, stream: int) -> StateBytes:
        """Copy out what a stream holds.

        Raises:
            GenerationFailed: the library could not.
        """
        self.length(stream)
        lib.llama_synchronize(self._pointer)
        data = np.empty(lib.llama_state_seq_get_size(self._pointer, stream), np.uint8)
        if lib.llama_state_seq_get_data(self._pointer, _bytes_of(data), data.size, stream) != data.size:
            raise GenerationFailed(f"the cache could not be copied out: {log_tail()}")
        return data

    def extents(self, stream: int) -> Extents:
        """Which pieces of what a stream holds take fewer positions than tokens."""
        return self._extents[stream]

    def load(self, stream: int, data: StateBytes, tokens: int, extents: Extents = ()) -> None:
        """Copy into an empty stream what `save` gave for `tokens` tokens that have these `extents`, here or elsewhere.

        Raises:
            ValueError: the stream is not empty, or too small.
            GenerationFailed: the data is not of this model and layout; the stream is empty.
        """
        if self.length(stream):
            raise ValueError("the slot is not empty")
        if not 0 <= tokens <= self.cells:
            raise ValueError(f"{tokens} tokens do not fit into {self.cells} cells")
        if not tokens:
            return
        lib.llama_synchronize(self._pointer)
        source = for_streams(np.ascontiguousarray(data), len(self._lengths))
        read = lib.llama_state_seq_set_data(self._pointer, _bytes_of(source), source.size, stream)
        # The last piece's tokens may share a position before the last that it takes.
        begin, end, _ = extents[-1] if extents else (0, 0, 0)
        last = pieces.position(extents, begin if tokens == end else tokens)
        greatest = lib.llama_memory_seq_pos_max(self._memory, stream)
        if read == 0 or last is None or (greatest < last if tokens == end else greatest != last - 1):
            self.clear(stream)
            raise GenerationFailed(f"the cache does not fit this model and layout: {log_tail()}")
        self._lengths[stream], self._extents[stream] = tokens, extents

    def lengths(self) -> list[int]:
        """How many tokens each stream holds; 0 for one that is undefined."""
        return [length or 0 for length in self._lengths]

    def swap(self, one: int, other: int) -> None:
        """Exchange what two streams hold; an undefined one counts as empty."""
        streams = (one, other)
        lengths = self.lengths()
        saved = [self.save(stream) if lengths[stream] else None for stream in streams]
        states = [self._lengths[stream] for stream in streams]
        extents = [self._extents[stream] for stream in streams]
        for stream in streams:
            self.clear(stream)
        for stream, data, state, of_pieces in zip(reversed(streams), saved, states, extents, strict=True):
            if data is not None:
                self.load(stream, data, state or 0, of_pieces)
            self._lengths[stream] = state

    def close(self) -> None:
        """Free all; the context is of no use afterwards."""
        if self._pointer:
            lib.llama_free(self._pointer)
            self._pointer = self._adapter = None
            self._lengths = []


def _open(
    model: Model,
    streams: int,
    cells: int,
    batch_tokens: int,
    threads: int,
    cache_type: int,
    *,
    outputs: int,
    is_plain: bool,
) -> Any:
    parameters = lib.llama_context_default_params()
    parameters.n_seq_max = streams
    parameters.n_ctx = streams * (-(-cells // 256) * 256)  # the library rounds each stream to 256 cells
    parameters.n_batch = parameters.n_ubatch = batch_tokens
    if is_plain:
        parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.n_ubatch = min(batch_tokens, max(PLAIN_TOKENS, streams))
    parameters.n_outputs_max = outputs  # rows of logits: not one for each token of a batch
    parameters.n_threads = parameters.n_threads_batch = threads
    # Measured (bench/cache_layout.py): in one pool every step attends over the paused sequences too.
    parameters.kv_unified = False
    parameters.type_k = parameters.type_v = cache_type
    parameters.swa_full = False
    parameters.no_perf = True
    pointer = lib.llama_init_from_model(model.pointer, parameters)
    if not pointer or lib.llama_n_ctx_seq(pointer) < cells:
        raise failure(f"{model.path}: no cache of {streams} x {cells} tokens")
    return pointer


def _bytes_of(data: StateBytes) -> ctypes.Array[ctypes.c_uint8]:
    return (ctypes.c_uint8 * data.size).from_address(data.ctypes.data)
