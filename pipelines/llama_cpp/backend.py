"""The weights and the cache of a GGUF model as the engine uses them. Engine thread only, but for construction."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tenuto.errors import GenerationFailed, ModelLoadFailed
from tenuto.pipelines.adapters import Fitting
from tenuto.pipelines.backend import (
    BackendInfo,
    Bitmask,
    Pending,
    Row,
    RowFailed,
    Sampled,
    Sampling,
    Snapshot,
    TokenLogprob,
)
from tenuto.pipelines.checks import check_drafted, check_rows
from tenuto.pipelines.fit import most_drafts
from tenuto.pipelines.images import Embeddings
from tenuto.pipelines.llama_cpp import packing
from tenuto.pipelines.llama_cpp.batch import Feed
from tenuto.pipelines.llama_cpp.choosing import LlamaPending, sample, sample_after
from tenuto.pipelines.llama_cpp.context import Context
from tenuto.pipelines.llama_cpp.lora import LlamaAdapter, adapted
from tenuto.pipelines.llama_cpp.native import Model
from tenuto.pipelines.llama_cpp.projector import Projector
from tenuto.pipelines.llama_cpp.sampling import LlamaSampler, Size
from tenuto.pipelines.llama_cpp.settings import LlamaSettings, how_it_shares

# What moving a byte of cache costs against reading a byte of weights: it is read and written twice on its way through
# host memory, and crosses the bus twice where the weights lie on an accelerator.
_MOVE_COST_HOST, _MOVE_COST_DEVICE = 4, 200


class LlamaBackend:
    """Slots over the streams of one native context.

    A slot is not tied to a stream: streams are swapped, behind the slots' numbers, so that those that step together
    lie side by side (see packing.py). A swap is paid for by the passes that it saves: it waits until the passes lost
    so far have cost as much as it will.

    Raises:
        ModelLoadFailed: the model is of a kind that cannot be served, or does not fit into memory.
    """

    def __init__(
        self,
        model: Model,
        settings: LlamaSettings,
        projector: Projector | None = None,
        adapter: Fitting | None = None,
    ) -> None:
        if not model.is_decoder:
            raise ModelLoadFailed(
                f"{model.path}: only models that generate text by themselves, or embed, can be served"
            )
        self._model = model
        self._context = Context(
            model,
            streams=settings.slots,
            cells=settings.cells,
            batch_tokens=max(settings.batch_tokens, settings.slots, 1 if projector is None else projector.least_batch),
            threads=settings.threads,
            drafts=(drafts := _drafts(model, settings)),
            is_plain=settings.is_plain,
            cache_type=settings.cache_type,
            adapter=None if adapter is None else LlamaAdapter(model, adapter.adapter),
        )
        self._streams = list(range(settings.slots))
        self._pending: LlamaPending | None = None
        self._collected: LlamaPending | None = None
        self._lost = 0
        bytes_per_token = _measure_token(self._context)
        move_cost = _MOVE_COST_DEVICE if model.is_offloaded else _MOVE_COST_HOST
        self._swap_cost_per_token = move_cost * bytes_per_token
        self._info = BackendInfo(
            context=min(settings.cells, model.training_context or settings.cells),
            slots=settings.slots,
            cells=settings.cells,
            batch_tokens=self._context.batch_tokens,
            bytes_per_token=bytes_per_token,
            can_truncate=model.can_truncate,
            drafts=drafts,
            reads_images=projector is not None,
            description=model.description,
            weights=model.weights if adapter is None else adapted(model.weights, adapter),
            runs_on=f"llama.cpp, {settings.threads} thread{'s' if settings.threads > 1 else ''}",
            further=(
                *how_it_shares(model, settings.threads),
                *(() if adapter is None else (("adapter", adapter.described),)),
            ),
        )

    @property
    def info(self) -> BackendInfo:
        """Facts that do not change."""
        return self._info

    @property
    def threads(self) -> int:
        """How many threads the next step gets: fewer than were given while other processes want the processors."""
        return self._context.threads

    def sampler(self, sampling: Sampling, before: Sequence[int] = (), said: Sequence[int] = ()) -> LlamaSampler:
        """Sampling state for one round of a sequence that ended with the tokens `before` and has sampled `said` so far.

        Raises:
            ValueError: a parameter is out of its range.
        """
        return LlamaSampler(sampling, before, Size(self._model.vocabulary, self._info.context), said)

    def launch(self, rows: Sequence[Row]) -> LlamaPending:
        """Begin a step over rows of different slots; the last step must have been collected.

        Raises:
            ValueError: the step is invalid; nothing has changed.
            GenerationFailed: the step failed; the slots in it are undefined.
        """
        if self._pending is not None:
            raise ValueError("the last step has not been collected")
        self._collected = None
        check_rows(rows, self._info, self._model.vocabulary, self._length, LlamaSampler)
        if rows[0].embeddings is not None:
            return self._launch_piece(rows[0], rows[0].embeddings)
        self._pack([row.slot for row in rows])
        # Neighbouring streams share a pass only where the batch holds them in order.
        order = sorted(range(len(rows)), key=lambda index: self._streams[rows[index].slot])
        self._context.decode([self._feed(rows[index]) for index in order])
        self._pending = LlamaPending(rows, order)
        return self._pending

    def _launch_piece(self, row: Row, made: Embeddings) -> LlamaPending:
        self._context.decode_piece(self._streams[row.slot], made, wants_logits=row.sampler is not None)
        self._pending = LlamaPending([row], [0])
        return self._pending

    def collect(self, pending: Pending) -> Sampled:
        """Wait for the step and read its tokens.

        Raises:
            ValueError: this is not the step that is under way.
        """
        if self._pending is None or pending is not self._pending:
            raise ValueError("this step is not under way")
        step, self._pending = self._pending, None
        self._collected = step
        return sample(self._context, step)

    def sample_after(
        self, pending: Pending, row: int, drafted: int, mask: Bitmask | None
    ) -> int | TokenLogprob | RowFailed:
        """Sample behind the first `drafted` tokens of a row's draft, which are what has been sampled before them.

        Raises:
            ValueError: this is not the step that was collected last, or its row has no such draft.
        """
        step = self._collected
        check_drafted(step.rows if step is not None and pending is step else (), row, drafted)
        assert step is not None
        return sample_after(self._context, step, row, drafted, mask)

    def fork(self, source: int, target: int, tokens: int) -> None:
        """Make `target`, which is empty, hold the first `tokens` of `source`.

        Through host memory and at once: the library's own copy of a stream moves all of its cells, and only with the
        next step, so that what is read or overwritten before would be wrong.

        Raises:
            ValueError: the target is not empty, or the source cannot be cut to so many tokens.
        """
        held = self._length(source)
        if source == target or self._length(target) or not 0 <= tokens <= held:
            raise ValueError(f"slot {target} cannot become the first {tokens} of {held} tokens of slot {source}")
        if tokens < held and not self._info.can_truncate:
            raise ValueError("this model's cache can only be forked whole")
        if tokens:
            stream = self._streams[source]
            self._context.load(self._streams[target], self._context.save(stream), held, self._context.extents(stream))
            self.truncate(target, tokens)

    def truncate(self, slot: int, tokens: int) -> bool:
        """Cut a slot back to its first `tokens`. False where the cache cannot: the slot is then as it was.

        Raises:
            ValueError: the slot holds fewer tokens.
        """
        held = self._length(slot)
        if 0 < tokens < held and not self._info.can_truncate:
            return False
        return self._context.cut(self._streams[slot], tokens)

    def release(self, slot: int) -> None:
        """Empty a slot, in whatever state it is."""
        self._context.clear(self._stream(slot))

    def snapshot(self, slot: int) -> Snapshot:
        """Copy a slot's cache out, as an array of bytes. The slot stays."""
        tokens = self._length(slot)
        data = self._context.save(self._streams[slot])
        return Snapshot(tokens, data.nbytes, data, self._context.extents(self._streams[slot]))

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """Copy a cache into a slot, which is empty. `data` may be any buffer of the bytes that `snapshot` gave.

        Raises:
            ValueError: the slot is not empty, or too small.
            GenerationFailed: the bytes are not of this model and type of cache; the slot is empty.
        """
        self._length(slot)
        data = np.frombuffer(snapshot.data, np.uint8)
        self._context.load(self._streams[slot], data, snapshot.tokens, snapshot.extents)

    def wait(self) -> None:
        """Wait for the step that is under way; collect does so by itself."""
        self._context.wait()

    def passes(self, slots: Sequence[int]) -> int:
        """Count the passes over the weights that a step of one token for each of these slots takes now."""
        return packing.passes([self._stream(slot) for slot in slots])

    def close(self) -> None:
        """Free the cache; the weights go with the last who holds the model."""
        self._context.close()

    def _stream(self, slot: int) -> int:
        if not 0 <= slot < len(self._streams):
            raise ValueError(f"there is no slot {slot}")
        return self._streams[slot]

    def _length(self, slot: int) -> int:
        return self._context.length(self._stream(slot))

    def _feed(self, row: Row) -> Feed:
        tokens = [*row.tokens, *row.draft] if row.draft else row.tokens
        return Feed(self._streams[row.slot], row.start, tokens, 0 if row.sampler is None else 1 + len(row.draft))

    def _pack(self, slots: Sequence[int]) -> None:
        """Swap two streams if the gaps between the step's streams have cost as many bytes read as the swap moves."""
        streams = [self._streams[slot] for slot in slots]
        gaps = packing.passes(streams) - 1
        if gaps == 0 or self._model.is_recurrent:
            self._lost = 0
            return
        self._lost += gaps * self._model.weight_bytes
        lengths = self._context.lengths()
        swap = packing.next_swap(streams, lengths)
        if swap is None:
            return
        cost = (lengths[swap[0]] + lengths[swap[1]]) * self._swap_cost_per_token
        if self._lost >= cost:
            self._lost = 0
            self._swap(*swap)

    def _swap(self, one: int, other: int) -> None:
        self._context.swap(one, other)
        slot, second = self._streams.index(one), self._streams.index(other)
        self._streams[slot], self._streams[second] = other, one


def _drafts(model: Model, settings: LlamaSettings) -> int:
    """How many drafted tokens a step verifies: none where what was wrong of them could not be cut off again."""
    if not model.can_truncate:
        return 0
    return most_drafts(settings.drafts, settings.batch_tokens, model.vocabulary)


def _measure_token(context: Context) -> int:
    """Run two tokens, so that the weights are warm, and see what the second one adds to a saved cache.

    In a thread that ends with it. OpenMP keeps a team of threads for every thread that has ever computed, counts them
    all, and once there are more than processors lets a team sleep at every barrier instead of spinning: an engine's
    thread was at half its speed as long as the thread that had loaded its model lived.
    """
    with ThreadPoolExecutor(1, "measure") as passing:
        return passing.submit(_measured, context).result()


def _measured(context: Context) -> int:
    sizes = []
    try:
        for position in (0, 1):
            context.decode([Feed(0, position, [0], 1)])
            context.logits()
            sizes.append(context.save(0).nbytes)
    except GenerationFailed as error:
        raise ModelLoadFailed(f"the model cannot run: {error}") from error
    context.clear(0)
    return max(1, sizes[1] - sizes[0])
