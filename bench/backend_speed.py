"""Decode speed of the llama.cpp backend against llama-batched-bench: same model, threads and cache layout, interleaved.

The peer samples nothing: `step` is what it does too (the model and the logits), `greedy` and `sampled` add our choice
of tokens. Build the peer with bench/peers.sh. Usage: python bench/backend_speed.py [MODEL.gguf]
"""

import argparse
import json
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from harness.servers import PEERS
from random_model import random_model

from tenuto.pipelines.backend import Row, Sampling
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, Model

PROMPT, TOKENS, CELLS, BATCH = 128, 64, 256, 512
MODES = {"greedy": Sampling(), "sampled": Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=1)}


@dataclass(frozen=True)
class Speed:
    """Tokens a second, of the steps alone and with the choice of tokens."""

    step: float
    whole: float


def ours(backend: LlamaBackend, count: int, sampling: Sampling) -> Speed:
    """Decode TOKENS tokens for so many sequences, each behind a prompt of its own."""
    for slot in range(count):
        backend.collect(backend.launch([Row(slot, 0, range(1000 + slot, 1000 + slot + PROMPT))]))
    samplers = [backend.sampler(sampling) for _ in range(count)]
    feed: list[int] = [300] * count
    stepping = 0.0
    begin = time.perf_counter()
    for held in range(PROMPT, PROMPT + TOKENS):
        rows = [Row(slot, held, [feed[slot]], samplers[slot]) for slot in range(count)]
        launched = time.perf_counter()
        pending = backend.launch(rows)
        backend.wait()
        stepping += time.perf_counter() - launched
        sampled = backend.collect(pending)
        feed = [token for token in sampled if isinstance(token, int)]
    whole = time.perf_counter() - begin
    for slot, sampler in enumerate(samplers):
        sampler.close()
        backend.release(slot)
    return Speed(count * TOKENS / stepping, count * TOKENS / whole)


@dataclass(frozen=True)
class Peer:
    """Tokens a second of all sequences together."""

    prefill: float
    decode: float


def peers(model: Path, counts: list[int], threads: int, slots: int) -> dict[int, Peer]:
    """What llama-batched-bench reaches with a cache for so many slots, by number of sequences."""
    command = [str(PEERS / "llama-batched-bench"), "-m", str(model), "-c", str(CELLS * slots)]
    command += ["-b", str(BATCH), "-ub", str(BATCH)]
    command += ["-t", str(threads), "-tb", str(threads), "-npp", str(PROMPT), "-ntg", str(TOKENS)]
    command += ["-npl", ",".join(map(str, counts)), "-no-kvu", "--output-format", "jsonl"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    results = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {result["pl"]: Peer(result["speed_pp"], result["speed_tg"]) for result in results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 16])
    given = parser.parse_args()
    path = given.model or random_model()
    settings = LlamaSettings(slots=max(given.sequences), cells=CELLS, threads=given.threads, batch_tokens=BATCH)
    backend = LlamaBackend(Model(path), settings)
    peer: dict[int, list[float]] = {count: [] for count in given.sequences}
    own: dict[tuple[str, int], list[Speed]] = {}
    for _ in range(given.repeat):
        for count, speed in peers(path, given.sequences, given.threads, max(given.sequences)).items():
            peer[count].append(speed.decode)
        for mode, sampling in MODES.items():
            for count in given.sequences:
                own.setdefault((mode, count), []).append(ours(backend, count, sampling))
    backend.close()
    print(f"{path.name}, {given.threads} threads, medians of {given.repeat}; tokens/s of all sequences together")
    head = ("mode", "peer", "step", "whole", "step/peer", "whole/peer", "choice")
    print(f"{'sequences':>9}" + "".join(f"{name:>11}" for name in head))
    for (mode, count), speeds in own.items():
        theirs = statistics.median(peer[count])
        step, whole = (statistics.median(getattr(speed, name) for speed in speeds) for name in ("step", "whole"))
        figures = "".join(f"{speed:>11.1f}" for speed in (theirs, step, whole))
        print(f"{count:>9}{mode:>11}{figures}{step / theirs:>11.3f}{whole / theirs:>11.3f}{1 - whole / step:>11.1%}")


if __name__ == "__main__":
    main()
