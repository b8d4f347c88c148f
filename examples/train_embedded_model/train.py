"""Train the model: python -m train_embedded_model.train --out build/model

Can be stopped after any step (Ctrl-C ends with a checkpoint) and goes on from its last checkpoint. The data depend on
the seed, the number of processes and how far it is, so a run that was stopped learns what one that was not would have.
"""

import argparse
import json
import os
import random
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from train_embedded_model.ahead import ahead
from train_embedded_model.batches import Batch, Recipe
from train_embedded_model.conversations import Conversation, conversation
from train_embedded_model.layout import Piece, pieces
from train_embedded_model.network import Network, Shape
from train_embedded_model.optimizers import Muon
from train_embedded_model.ranks import Ranks, run_ranks
from train_embedded_model.tokens import Encoder, train_tokenizer

LOOKING_WEIGHT = 0.3
"""Of the loss of heads that do not look where a name or a value stands."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, and how. Rates fall linearly to 0 at `tokens`, from the end of the warm-up on.

    `longest`: tokens of a conversation. Most pools have only short ones; from the pool `long_from` on some have all.
    """

    out: Path
    tokens: float = 100e6
    vocabulary: int = 3072
    width: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 6
    head_width: int = 64
    hidden: int = 512
    longest: int = 4096
    long_from: int = 400
    batch_tokens: int = 4096
    matrix_rate: float = 0.012
    other_rate: float = 0.003
    warm_steps: int = 100
    seed: int = 1
    ranks: int = min(4, os.cpu_count() or 1)
    """Processes that train together, each with a batch of its own a step; on a GPU, one."""
    workers: int = 0
    """Processes beside each of these that make what it reads; with none it makes that itself, which on a CPU is one
    part in eighty of its time."""
    threads: int = 1
    """Of each process."""
    device: str = "cpu"
    begin: Path | None = None
    every_s: float = 240.0
    compile: bool = True
    tokenizer_talks: int = 20_000
    evaluation_talks: int = 100


class Trainer:
    """A run: the model, its optimisers and how far they are."""

    def __init__(self, plan: Plan, ranks: Ranks | None = None) -> None:
        self.ranks = ranks or Ranks()
        torch.set_num_threads(plan.threads)
        torch._dynamo.config.recompile_limit = 64
        torch.manual_seed(plan.seed)
        plan.out.mkdir(parents=True, exist_ok=True)
        self.tokenizer = plan.out / "tokenizer.json"
        if self.ranks.first and not self.tokenizer.exists():
            train_tokenizer(self.tokenizer, plan.vocabulary, plan.seed, plan.tokenizer_talks)
        self.ranks.wait()
        self.plan = plan
        self.encoder = Encoder(self.tokenizer)
        sizes = (plan.width, plan.layers, plan.heads, plan.kv_heads, plan.head_width, plan.hidden)
        self.shape = Shape(self.encoder.vocabulary, *sizes)
        self.network = Network(self.shape).to(plan.device)
        self.muon = Muon(self.network.matrices())
        self.adam = torch.optim.AdamW(self.network.others(), lr=plan.other_rate, betas=(0.9, 0.97), weight_decay=0.0)
        self.step = self.tokens = 0
        self.pool = self.batch = 0
        """Which pool it is at, and the batches of it that are done."""
        self.stopped = self.stopping = False
        """Whether this process was told to stop, and whether any was."""
        self.checkpoint = plan.out / "checkpoint.pt"
        self._load()
        if plan.compile:
            for block in self.network.blocks:
                block.compile(dynamic=False)

    def _load(self) -> None:
        if self.checkpoint.exists():
            kept = torch.load(self.checkpoint)
            self.network.load_state_dict(kept["network"])
            self.muon.load(kept["muon"])
            self.adam.load_state_dict(kept["adam"])
            self.step, self.tokens = kept["step"], kept["tokens"]
            self.pool, self.batch = kept["pool"], kept["batch"]
        elif self.plan.begin is not None:
            begun = torch.load(self.plan.begin)
            self.network.load_state_dict(begun["network"])
            self.pool = begun["pool"]

    def save(self) -> None:
        """Write a checkpoint, whole or not at all."""
        kept: dict[str, Any] = {
            "network": self.network.state_dict(),
            "muon": self.muon.state(),
            "adam": self.adam.state_dict(),
            "shape": self.shape.facts(),
            "step": self.step,
            "pool": self.pool,
            "batch": self.batch,
            "tokens": self.tokens,
        }
        part = self.checkpoint.with_suffix(".part")
        torch.save(kept, part)
        part.replace(self.checkpoint)

    def run(self) -> None:
        """Train until the plan's tokens are used up, or until `stop`; then write a checkpoint."""
        plan = self.plan
        seen = {split: evaluation_set(self.encoder, split, plan.evaluation_talks) for split in ("fresh", "held out")}
        losses: list[tuple[float, float]] = []
        saved = began = time.monotonic()
        begun = self.tokens
        done = False
        with closing(self._pools()) as pools:
            while not done:
                losses += self._train_pool(next(pools))
                done = self.stopping or self.tokens >= plan.tokens
                if len(losses) >= 50 or done:
                    speed = (self.tokens - begun) / (time.monotonic() - began)
                    loss, missed = np.mean(losses, 0).round(4).tolist()
                    self._log(loss=loss, missed=missed, speed=round(speed))
                    losses.clear()
                if self.ranks.first and (done or time.monotonic() - saved > plan.every_s):
                    self.save()
                    for split, talks in seen.items():
                        self._log(split=split, exact=self.exact(talks))
                    saved = time.monotonic()

    def _pools(self) -> Generator[list[Batch]]:
        plan, ranks = self.plan, self.ranks
        recipe = Recipe(
            self.tokenizer, plan.seed, plan.batch_tokens, plan.longest, plan.long_from, ranks.rank, ranks.count
        )
        return ahead(recipe.pool, count(self.pool // ranks.count), plan.workers)

    def _train_pool(self, made: list[Batch]) -> Iterator[tuple[float, float]]:
        """Train on what is left of the pool, or until the stop; on as many batches as the others have of theirs."""
        made = made[: self.ranks.least(len(made))]
        # About the lengths of the others' at the same time, so that none waits long.
        random.Random(self.pool // self.ranks.count).shuffle(made)
        for batch in made[self.batch :]:
            yield self._train(batch)
            self.batch += 1
            if self.stopping:
                break
        if self.batch == len(made):
            self.pool, self.batch = self.pool + self.ranks.count, 0

    def stop(self) -> None:
        """End after the step that is being made."""
        self.stopped = True

    def _train(self, batch: Batch) -> tuple[float, float]:
        plan = self.plan
        fall = max(0.0, 1 - self.tokens / plan.tokens)
        scale = min(1.0, (self.step + 1) / plan.warm_steps) * max(0.02, fall)
        ids = torch.from_numpy(batch.ids).to(plan.device)
        weights = torch.from_numpy(batch.weights).reshape(-1)
        said = weights.nonzero().squeeze(1)
        targets = torch.from_numpy(batch.targets).reshape(-1)[said].to(plan.device)
        with torch.autocast(plan.device, torch.bfloat16):
            inputs: list[Tensor] = []
            states = self.network(ids, inputs).reshape(-1, self.shape.width).index_select(0, said.to(plan.device))
            logits = self.network.logits(states)
            looks = self.network.looks(inputs, torch.from_numpy(batch.places).to(plan.device))
        losses = functional.cross_entropy(logits.float(), targets, reduction="none")
        weight = weights[said].to(plan.device)
        missed = _missed(looks, torch.from_numpy(batch.sources).to(plan.device))
        torch.autograd.backward((losses * weight).sum() / weight.sum() + LOOKING_WEIGHT * missed)
        self.ranks.average([p.grad for p in self.network.parameters() if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(self.network.others(), 1.0)
        self.muon.step(plan.matrix_rate * scale)
        for group in self.adam.param_groups:
            group["lr"] = plan.other_rate * scale
        self.adam.step()
        self.network.zero_grad(set_to_none=True)
        self.step += 1
        tokens, stopped = self.ranks.totals(batch.ids.size, self.stopped)
        self.tokens += tokens
        self.stopping = stopped > 0
        return float(losses.detach().mean()), float(missed.detach())

    def exact(self, talks: Sequence["Talk"]) -> dict[str, str]:
        """The share of assistant messages that are right to the last token, by ability, all before them given."""
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            return self._exact(talks)

    def _exact(self, talks: Sequence["Talk"]) -> dict[str, str]:
        found: dict[str, list[bool]] = {}
        for talk in talks:
            ids = torch.tensor([talk.ids[:-1]]).to(self.plan.device)
            said = self.network.logits(self.network(ids)[0]).argmax(-1).cpu().tolist()
            for ability, begin, end in talk.spans:
                found.setdefault(ability, []).append(said[begin - 1 : end - 1] == talk.ids[begin:end])
        return {ability: f"{np.mean(right):.2f}/{len(right)}" for ability, right in sorted(found.items())}

    def _log(self, **facts: Any) -> None:
        if not self.ranks.first:
            return
        line = {"step": self.step, "tokens": round(self.tokens / 1e6, 2), **facts}
        print(json.dumps(line), flush=True)
        with (self.plan.out / "log.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def _missed(looks: list[Tensor], sources: Tensor) -> Tensor:
    """How far heads look elsewhere than at their sources: the mean of the negative logarithms of the shares there."""
    points = sources.any(-1)
    shares = [look.masked_fill(~sources, float("-inf"))[points].logsumexp(-1) for look in looks]
    return -torch.cat(shares).mean() if points.any() else torch.zeros((), device=sources.device)


@dataclass(frozen=True, slots=True)
class Talk:
    """An encoded conversation, and where each of its assistant messages is."""

    ids: list[int]
    spans: list[tuple[str, int, int]]


def evaluation_set(encoder: Encoder, split: str, count: int, longest: int = 1024) -> list[Talk]:
    """Conversations that training has not seen; `held out` ones have other tools, phrases and values, too."""
    rng = random.Random(f"evaluation of what is {split}")
    talks: list[Talk] = []
    while len(talks) < count:
        talk = encode_spans(encoder, conversation(rng, test=split == "held out"))
        if len(talk.ids) <= longest:
            talks.append(talk)
    return talks


def encode_spans(encoder: Encoder, talk: Conversation) -> Talk:
    """Encode a conversation and find its assistant messages."""
    abilities = iter([message.ability for message in talk.messages if message.role == "assistant"])
    ids: list[int] = []
    spans: list[tuple[str, int, int]] = []
    parts: list[Piece] = pieces(talk)
    for part in parts:
        found = encoder.tokens(part.text)
        if part.trained:
            spans.append((next(abilities), len(ids), len(ids) + len(found)))
        ids += found
    return Talk(ids, spans)


def main() -> None:
    """Read the plan from the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--begin", type=Path, help="a checkpoint: begin with its weights, and with the data after it")
    defaults = {field.name: field.type for field in fields(Plan)}
    for name, kind in defaults.items():
        if kind in (int, float):
            parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    parser.add_argument("--device")
    parser.add_argument("--no-compile", dest="compile", action="store_false", default=None)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    plan = Plan(**given)
    run_ranks(plan.ranks if plan.device == "cpu" else 1, partial(_train, plan))


def _train(plan: Plan, ranks: Ranks) -> None:
    trainer = Trainer(plan, ranks)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: trainer.stop())
    trainer.run()


if __name__ == "__main__":
    main()

__all__ = ["Plan", "Trainer", "encode_spans", "evaluation_set"]
