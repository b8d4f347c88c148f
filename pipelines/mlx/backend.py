"""The weights and the cache of an MLX model as the engine uses them. Engine thread only, but for construction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from tenuto.errors import GenerationFailed
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
from tenuto.pipelines.checks import check_rows
from tenuto.pipelines.mlx import caches, packing
from tenuto.pipelines.mlx.device import leave_thread, runs_on
from tenuto.pipelines.mlx.model import Model
from tenuto.pipelines.mlx.sampling import MlxSampler
from tenuto.pipelines.mlx.slots import Batch, Slots
from tenuto.pipelines.mlx.step import MlxPending, choose_tokens, read_tokens, token_of

# What a pass costs beside its weights: building and starting it takes as long as reading about so many bytes.
_PASS_BYTES = 32 << 20

# MLX keeps the buffers that were freed. A growing cache leaves ever larger ones, at each prompt and every 256 tokens.
_CLEAR_EVERY = 256


@dataclass(frozen=True, slots=True)
class MlxSettings:
    """How much a model may take: `slots` sequences of `cells` tokens, `batch_tokens` a step over all rows.

    `pass_bytes` is what a pass costs beside its caches, as bytes that are read; None: as the weights have it.
    """

    slots: int = 4
    cells: int = 4096
    batch_tokens: int = 512
    pass_bytes: int | None = None


@dataclass(slots=True)
class _Ahead:
    """A pass that was begun before anybody asked for it, over the tokens that were being chosen."""

    batch: Batch
    slots: list[int]
    """By row of the logits."""
    logits: mx.array
    tokens: dict[int, int] = field(default_factory=dict)
    """The tokens that it was fed, by slot, once they are known."""


class MlxBackend:
    """Slots over mlx-lm's caches. Those that decode lie together in batches; each prompt is read by itself.

    The last token of a prompt goes through the batch of those that decode: reading a prompt then never computes the
    logits of more than one token, and takes no pass of its own for it.
    """

    def __init__(self, model: Model, settings: MlxSettings) -> None:
        if min(settings.slots, settings.cells, settings.batch_tokens) < 1:
            raise ValueError(f"nobody is served by {settings}")
        self._model = model
        weights = model.weight_bytes + _PASS_BYTES if settings.pass_bytes is None else settings.pass_bytes
        self._slots = Slots(model, settings.slots, weights)
        # What is kept so that a pass ahead can be undone may cost this much of a pass.
        self._spare = weights // 32
        self._ahead: list[_Ahead] = []
        self._steps = 0
        self._pending: MlxPending | None = None
        context = min(settings.cells, model.training_context or settings.cells)
        self._info = BackendInfo(
            context=context,
            slots=settings.slots,
            cells=settings.cells,
            batch_tokens=max(settings.batch_tokens, settings.slots),
            bytes_per_token=max(1, -(-model.cache_bytes(context) // context)),
            can_truncate=model.can_cut(context),
            can_batch=model.can_batch,
            description=model.description,
            runs_on=runs_on(),
            weights=model.weights,
        )

    @property
    def info(self) -> BackendInfo:
        """Facts that do not change."""
        return self._info

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self._model.vocabulary

    @property
    def threads(self) -> int:
        """None that are its own."""
        return 0

    def sampler(self, sampling: Sampling, before: Sequence[int] = (), said: Sequence[int] = ()) -> MlxSampler:
        """Sampling state for one round of a sequence that ended with the tokens `before` and has sampled `said` so far.

        Raises:
            ValueError: a parameter is out of its range.
        """
        return MlxSampler(sampling, before, self._model.vocabulary, said)

    def launch(self, rows: Sequence[Row]) -> MlxPending:
        """Begin a step over rows of different slots; the last step must have been collected.

        Raises:
            ValueError: the step is invalid; nothing has changed.
            GenerationFailed: the step failed; the slots in it are undefined.
        """
        if self._pending is not None:
            raise ValueError("the last step has not been collected")
        check_rows(rows, self._info, self._model.vocabulary, self._slots.length, MlxSampler)
        step = MlxPending(rows)
        try:
            self._feed(step)
            self._decode(step)
            self._run_ahead(step)
        except Exception as error:  # whatever a model raises, its caches are half written
            raise self._lost(rows, error) from error
        self._pending = step
        return step

    def collect(self, pending: Pending) -> Sampled:
        """Wait for the step and read its tokens.

        Raises:
            ValueError: this is not the step that is under way.
            GenerationFailed: the step failed; the slots in it are undefined.
        """
        if self._pending is None or pending is not self._pending:
            raise ValueError("this step is not under way")
        step, self._pending = self._pending, None
        try:
            mx.eval(step.fed, [chosen.choice.arrays() for chosen in step.chosen])
        except Exception as error:  # as in launch
            raise self._lost(step.rows, error) from error
        self._steps += 1
        if step.fed or self._steps % _CLEAR_EVERY == 0:
            mx.clear_cache()
        step.fed = []  # they would keep the caches that they are of
        sampled: Sampled = [step.failed.get(row) for row in range(len(step.rows))]
        for chosen in step.chosen:
            read_tokens(step, chosen, sampled)
        tokens = {row.slot: token_of(sample) for row, sample in zip(step.rows, sampled, strict=True)}
        for ahead in self._ahead:
            ahead.tokens.update((slot, token) for slot in ahead.slots if (token := tokens.get(slot)) is not None)
        return sampled

    def sample_after(
        self, pending: Pending, row: int, drafted: int, mask: Bitmask | None
    ) -> int | TokenLogprob | RowFailed:
        """It takes no drafts, as its info says.

        Raises:
            ValueError: always.
        """
        del pending, row, drafted, mask
        raise ValueError("no row has a draft")

    def fork(self, source: int, target: int, tokens: int) -> None:
        """Make `target`, which is empty, hold the first `tokens` of `source`. Both share the memory until one writes.

        Raises:
            ValueError: the target is not empty, or the source cannot be cut to so many tokens.
        """
        held = self._slots.length(source)
        if source == target or self._slots.length(target) or not 0 <= tokens <= held:
            raise ValueError(f"slot {target} cannot become the first {tokens} of {held} tokens of slot {source}")
        if 0 < tokens < held and not self._model.can_cut(held):
            raise ValueError("this model's cache can only be forked whole")
        if tokens:
            cache = self._slots.copy(source)
            if tokens < held:
                caches.cut(cache, held - tokens)
            self._slots.put(target, cache, tokens)

    def truncate(self, slot: int, tokens: int) -> bool:
        """Cut a slot back to its first `tokens`. False where the cache cannot: the slot is then as it was.

        Raises:
            ValueError: the slot holds fewer tokens.
        """
        held = self._slots.length(slot)
        if not 0 <= tokens <= held:
            raise ValueError(f"a slot of {held} tokens cannot be cut to {tokens}")
        if tokens == held:
            return True
        if tokens == 0:
            self._slots.clear(slot)
            return True
        if not self._model.can_cut(held):
            return False
        caches.cut(self._slots.own(slot), held - tokens)
        self._slots.grow(slot, tokens - held)
        return True

    def release(self, slot: int) -> None:
        """Empty a slot, in whatever state it is."""
        self._slots.clear(slot)
        self._ahead = [ahead for ahead in self._ahead if ahead.batch.slots]

    def snapshot(self, slot: int) -> Snapshot:
        """Copy a slot's cache out, as an array of bytes. The slot stays."""
        tokens = self._slots.length(slot)
        if not tokens:
            return Snapshot(0, 0, np.empty(0, np.uint8))
        data = packing.pack(self._model, self._slots.copy(slot), tokens)
        return Snapshot(tokens, data.nbytes, data)

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """Copy a cache into a slot, which is empty. `data` may be any buffer of the bytes that `snapshot` gave.

        Raises:
            ValueError: the slot is not empty, or too small.
            GenerationFailed: the bytes are not of this model; the slot is empty.
        """
        if self._slots.length(slot):
            raise ValueError("the slot is not empty")
        if not 0 <= snapshot.tokens <= self._info.cells:
            raise ValueError(f"{snapshot.tokens} tokens do not fit into {self._info.cells} cells")
        if snapshot.tokens:
            cache = packing.unpack(self._model, snapshot.data, snapshot.tokens)
            self._slots.put(slot, cache, snapshot.tokens)

    def close(self) -> None:
        """Free the cache; the weights go with the last who holds the model. This thread uses MLX no more."""
        for slot in range(self._info.slots):
            self._slots.clear(slot)
        self._pending = None
        self._ahead = []
        mx.clear_cache()
        leave_thread()

    def _lost(self, rows: Sequence[Row], error: Exception) -> GenerationFailed:
        for row in rows:
            self._slots.clear(row.slot, None)
        return GenerationFailed(f"the step failed: {error}")

    def _feed(self, step: MlxPending) -> None:
        """Feed all tokens that nothing is sampled after, one slot after the other."""
        for row in step.rows:
            tokens = row.tokens if row.sampler is None else row.tokens[:-1]
            if tokens:
                cache = self._slots.own(row.slot)
                self._model.forward(mx.array([list(tokens)]), cache)
                caches.begin(cache)
                step.fed += caches.arrays(cache)
                self._slots.grow(row.slot, len(tokens))

    def _decode(self, step: MlxPending) -> None:
        """Feed the last token of each row that wants a sample, and choose the one after it."""
        at = {row.slot: index for index, row in enumerate(step.rows) if row.sampler is not None}
        served = self._catch_up(step, at)
        left = [slot for slot in at if slot not in served]
        for batch in self._slots.arrange(left) if left else ():
            rows = [at[slot] for slot in batch.slots]
            choose_tokens(
                step, rows, self._model.forward(mx.array([[step.rows[row].tokens[-1]] for row in rows]), batch.cache)
            )
            caches.begin(batch.cache)
            for slot in batch.slots:
                self._slots.grow(slot, 1)

    def _catch_up(self, step: MlxPending, at: Mapping[int, int]) -> set[int]:
        """Choose from what was computed ahead, where it is what the step asks for. Gives the slots that this serves."""
        served: set[int] = set()
        waiting: list[_Ahead] = []
        for ahead in self._ahead:
            slots = [slot for slot in ahead.slots if slot in at and self._slots.holds_ahead(slot, ahead.batch)]
            hits = [slot for slot in slots if list(step.rows[at[slot]].tokens) == [ahead.tokens.get(slot)]]
            if hits:
                self._slots.catch_up(ahead.batch, hits)
                order = [ahead.slots.index(slot) for slot in ahead.batch.slots]
                logits = ahead.logits if len(order) == len(ahead.slots) else ahead.logits[mx.array(order)]
                choose_tokens(step, [at[slot] for slot in ahead.batch.slots], logits)
                served.update(hits)
            elif slots:
                self._slots.fall_back(ahead.batch)
            elif ahead.batch.slots:
                waiting.append(ahead)
        self._ahead = waiting
        return served

    def _run_ahead(self, step: MlxPending) -> None:
        """Begin to feed the tokens that are being chosen, so that the device need not wait for who reads them."""
        rows = [row for chosen in step.chosen for row in chosen.rows]
        if not rows or not self._model.can_batch:
            return
        chosen = [chosen.choice.tokens for chosen in step.chosen]
        tokens = chosen[0] if len(chosen) == 1 else mx.concatenate(chosen)
        places = {step.rows[row].slot: place for place, row in enumerate(rows)}
        for batch in self._slots.arrange(list(places)):
            undo = caches.undo_of_next(batch.cache, self._spare)
            if undo is None:
                continue
            order = [places[slot] for slot in batch.slots]
            own = tokens if order == list(range(len(rows))) else tokens[mx.array(order)]
            logits = self._model.forward(own[:, None], batch.cache)
            batch.undo = undo
            mx.async_eval(logits, caches.arrays(batch.cache))
            self._ahead.append(_Ahead(batch, batch.slots, logits))
