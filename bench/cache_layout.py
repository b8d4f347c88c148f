"""Which cache layout makes running sequences fastest while others are paused: one pool, or a stream for each slot?

16 slots hold 256 to 1,000 tokens each; some decode, the rest are paused. Measured for both layouts, interleaved:
a decode step, and a step that carries a chunk of prefill beside. `packed`: the running slots are neighbours;
`spread`: paused ones lie between them. `filled`: spread, and the slots between get a token that is removed again.
`nothing paused` is the same without the paused sequences. Usage: python bench/cache_layout.py [MODEL.gguf]
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import llama_cpp as lib
import numpy as np
from random_model import random_model

from tenuto.pipelines.llama_cpp import Model

SLOTS, CELLS, CHUNK = 16, 1792, 496


class Layout:
    """A context with its slots filled, driven by the bare C API."""

    def __init__(self, model: Model, *, unified: bool, threads: int) -> None:
        parameters = lib.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = SLOTS * CELLS, SLOTS
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.kv_unified = unified
        self.context = lib.llama_init_from_model(model.pointer, parameters)
        self.memory = lib.llama_get_memory(self.context)
        self.batch = lib.llama_batch_init(512, 0, 1)
        self.lengths = [0] * SLOTS
        self.random = np.random.default_rng(0)
        self.vocabulary = model.vocabulary

    def step(self, rows: Sequence[tuple[int, int]]) -> float:
        """Feed so many tokens to each slot and give the seconds it took."""
        index = 0
        for slot, count in rows:
            for offset in range(count):
                self.batch.token[index] = int(self.random.integers(256, self.vocabulary - 16))
                self.batch.pos[index] = self.lengths[slot] + offset
                self.batch.n_seq_id[index], self.batch.seq_id[index][0] = 1, slot
                self.batch.logits[index] = offset == count - 1
                index += 1
            self.lengths[slot] += count
        self.batch.n_tokens = index
        begin = time.perf_counter()
        if lib.llama_decode(self.context, self.batch):
            raise RuntimeError("the step failed")
        lib.llama_synchronize(self.context)
        return time.perf_counter() - begin

    def cut(self, slot: int, length: int) -> None:
        lib.llama_memory_seq_rm(self.memory, slot, length, -1)
        self.lengths[slot] = length

    def fill(self, lengths: Sequence[int]) -> None:
        for slot, length in enumerate(lengths):
            self.cut(slot, 0)
            while self.lengths[slot] < length:
                self.step([(slot, min(512, length - self.lengths[slot]))])

    def close(self) -> None:
        lib.llama_batch_free(self.batch)
        lib.llama_free(self.context)


def measure(layout: Layout, running: Sequence[int], chunk: int, *, filled: bool = False) -> float:
    """One step over the running slots, with a chunk of prefill on the last of them; leaves all as it was."""
    before = list(layout.lengths)
    rows = [(slot, 1) for slot in running[:-1]] + [(running[-1], chunk or 1)]
    if filled:
        rows += [(slot, 1) for slot in range(min(running), max(running)) if slot not in running]
    begin = time.perf_counter()
    seconds = layout.step(sorted(rows))
    if filled:
        for slot in {slot for slot, _ in rows} - set(running):
            layout.cut(slot, before[slot])
        seconds = time.perf_counter() - begin
    for slot in running:
        layout.cut(slot, before[slot])
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=9)
    given = parser.parse_args()
    model = Model(given.model or random_model())
    layouts = {
        "pool": Layout(model, unified=True, threads=given.threads),
        "streams": Layout(model, unified=False, threads=given.threads),
    }
    lengths = [256 + (slot * 397) % 745 for slot in range(SLOTS)]
    print(f"{SLOTS} slots of {min(lengths)} to {max(lengths)} tokens, threads {given.threads}; median ms a step")
    print(
        f"{'running':>8} {'prefill':>8} {'arranged':>16} "
        + "".join(f"{name:>10}" for name in layouts)
        + "   pool/streams"
    )
    spread = {4: [0, 5, 10, 15], 8: [0, 2, 4, 6, 9, 11, 13, 15], 16: list(range(16))}
    for count in (4, 8, 16):
        cases = [("packed", list(range(count)), False)]
        if count < SLOTS:
            cases += [("spread", spread[count], False), ("filled", spread[count], True), ("nothing paused", [], False)]
        for arranged, running, filled in cases:
            alone = not running
            running = running or list(range(count))
            for layout in layouts.values():
                layout.fill([n if slot in running or not alone else 0 for slot, n in enumerate(lengths)])
            for chunk in (0, CHUNK):
                times: dict[str, list[float]] = {name: [] for name in layouts}
                for _ in range(given.repeat if not chunk else max(3, given.repeat // 3)):
                    for name, layout in layouts.items():
                        times[name].append(measure(layout, running, chunk, filled=filled))
                medians = [statistics.median(values) * 1e3 for values in times.values()]
                cells = "".join(f"{value:10.1f}" for value in medians)
                print(f"{count:>8} {chunk:>8} {arranged:>16} {cells} {medians[0] / medians[1]:>14.2f}", flush=True)
    for layout in layouts.values():
        layout.close()


if __name__ == "__main__":
    main()
