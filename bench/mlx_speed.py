"""The MLX pipeline against mlx-lm: decode speed on a random model, and what a tool session computes.

`engine` is our engine and `generator` mlx-lm's BatchGenerator, which is the heart of mlx_lm.server, in one process over
the same weights, in turn. `ours` and `theirs` are the two servers, each in a process of its own, asked for whole
answers by the same client. `paired` is the median of the repetitions' ratios, `of best` compares each side's best.
The sessions are those of stock clients that make their calls themselves and send the whole history each time, to both
servers with the embedded model; several are served in turn. Usage:
    python bench/mlx_speed.py [--sequences 1 4 16] [--repeat 5] [--only decode serve session] [--agents 1 12]
"""

import argparse
import asyncio
import json
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import mlx.core as mx
import uvloop
from mlx.utils import tree_flatten
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import llama

import tenuto.pipelines
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.pipelines.mlx import Model
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import Round, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from server import OwnServer  # the examples' own server process

EMBEDDED = Path(tenuto.pipelines.__file__).parent / "embedded" / "mlx"
OUT = Path(__file__).parent / "out" / "random-mlx"
PROMPT, TOKENS = 32, 64
CALLS = 20


def random_model(layers: int, width: int) -> Path:
    """Write random weights with the embedded model's tokenizer. Its end token is as likely as any: none asks for it."""
    folder = OUT / f"{layers}x{width}"
    if (folder / "model.safetensors").exists():
        return folder
    shutil.copytree(EMBEDDED, folder, dirs_exist_ok=True)
    config = json.loads((EMBEDDED / "config.json").read_text())
    config |= {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 3 * width}
    config |= {"num_attention_heads": width // 64, "num_key_value_heads": max(1, width // 256)}
    config |= {"tie_word_embeddings": False}
    config.pop("quantization", None)
    (folder / "config.json").write_text(json.dumps(config))
    network = llama.Model(llama.ModelArgs.from_dict(config))
    weights = {}
    for name, value in tree_flatten(network.parameters()):
        wide = mx.random.normal(value.shape) * (3.0 / math.sqrt(value.shape[-1]))
        weights[name] = value if "norm" in name else wide
    # The end of a turn is never the likeliest, so that every answer is as long as it may be.
    weights["lm_head.weight"][config["eos_token_id"]] = 0
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    return folder


def prompt(number: int) -> list[int]:
    return [(number * 131 + place * 37) % 1000 + 300 for place in range(PROMPT)]


# Decoding, in one process.


async def by_engine(engine: EngineClient, count: int) -> float:
    """Tokens a second of the steps in which all sequences decode."""
    times: list[list[float]] = [[] for _ in range(count)]

    async def follow(number: int) -> None:
        async for event in engine.submit(
            f"s{number}", prompt(number), Round(TOKENS + 1, Sampling(), frozenset()), principal="bench"
        ):
            if isinstance(event, TokensSampled):
                times[number] += [time.perf_counter()] * len(event.tokens)

    await asyncio.gather(*(follow(number) for number in range(count)))
    for number in range(count):
        engine.release(f"s{number}")
    return rate(times)


def by_generator(network: Any, count: int) -> float:
    """The same by mlx-lm's own scheduler."""
    generator = BatchGenerator(network, max_tokens=TOKENS + 1, completion_batch_size=count)
    at = {uid: number for number, uid in enumerate(generator.insert([prompt(number) for number in range(count)]))}
    times: list[list[float]] = [[] for _ in range(count)]
    while min(map(len, times)) <= TOKENS:
        for response in generator.next()[1]:
            times[at[response.uid]].append(time.perf_counter())
    generator.close()
    return rate(times)


def rate(times: list[list[float]]) -> float:
    begin, end = max(stamps[0] for stamps in times), min(stamps[-1] for stamps in times)
    return sum(begin < stamp <= end for stamps in times for stamp in stamps) / (end - begin)


async def decode(folder: Path, counts: list[int], repeat: int) -> None:
    pipeline = load(str(folder), LoadSettings(slots=max(counts), cells=256, batch_tokens=512))
    engine = EngineClient("bench", pipeline.backend.info.slots, Engine(pipeline))
    network = Model(folder).network
    table = Table("engine", "generator")
    for _ in range(repeat):
        for count in counts:
            theirs = await asyncio.to_thread(by_generator, network, count)
            table.add(count, await by_engine(engine, count), theirs)
    await engine.stop()
    table.show()


class Table:
    """Pairs of figures by number of sequences, ours and theirs."""

    def __init__(self, ours: str, theirs: str) -> None:
        self._names = ours, theirs
        self._pairs: dict[int, list[tuple[float, float]]] = {}

    def add(self, count: int, ours: float, theirs: float) -> None:
        self._pairs.setdefault(count, []).append((ours, theirs))

    def show(self) -> None:
        print(f"{'sequences':>9}{self._names[0]:>11}{self._names[1]:>11}{'ratio':>8}{'paired':>8}{'of best':>9}")
        for count, pairs in self._pairs.items():
            ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
            ratio = statistics.median(ours) / statistics.median(theirs)
            paired = statistics.median(mine / other for mine, other in pairs)
            print(
                f"{count:>9}{statistics.median(ours):>11.1f}{statistics.median(theirs):>11.1f}"
                f"{ratio:>8.3f}{paired:>8.3f}{max(ours) / max(theirs):>9.3f}"
            )


# Two servers.


@contextmanager
def their_server(folder: Path) -> Iterator[str]:
    """mlx_lm.server on a free port; it answers /health when it is up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(folder), "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "--log-level", "WARNING"], stdout=log, stderr=log, env=environment)
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(300):
                try:
                    httpx.get(f"{url}/health").raise_for_status()
                    break
                except httpx.HTTPError:
                    if process.poll() is not None:
                        log.seek(0)
                        raise SystemExit(log.read().decode()) from None
                    time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            process.wait()


@contextmanager
def our_server(*flags: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as data, OwnServer(Path(data) / "data", *flags) as server:
        yield server.url


def answers(url: str, model: str, count: int) -> float:
    """Tokens a second of whole answers to so many requests at once."""

    def ask(number: int) -> int:
        body = {"model": model, "prompt": f"{number} is a number", "max_tokens": TOKENS, "temperature": 0}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=600).raise_for_status().json()
        tokens: int = answer["usage"]["completion_tokens"]
        return tokens

    begin = time.perf_counter()
    with ThreadPoolExecutor(count) as clients:
        tokens = sum(clients.map(ask, range(count)))
    return tokens / (time.perf_counter() - begin)


def serve(folder: Path, counts: list[int], repeat: int) -> None:
    table = Table("ours", "theirs")
    with (
        our_server("--model", str(folder), "--slots", str(max(counts))) as ours,
        their_server(folder) as theirs,
    ):
        for _ in range(repeat + 1):
            for count in counts:
                mine = answers(ours, "default", count)
                table.add(count, mine, answers(theirs, "default_model", count))
    table.show()


# A session of tool calls.

TOOL = {
    "type": "function",
    "function": {
        "name": "evaluate",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}


@dataclass
class Agent:
    """A stock client with a conversation of its own: it sends all of it each time, and makes the calls itself."""

    url: str
    model: str
    computed_of: Callable[[dict[str, Any]], int]
    messages: list[dict[str, Any]]
    computed: int = 0
    prompts: int = 0
    called: int = 0

    def ask(self, choice: Any) -> dict[str, Any]:
        body = {"model": self.model, "messages": self.messages, "tools": [TOOL], "tool_choice": choice}
        body |= {"max_tokens": 60, "temperature": 0}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=600).raise_for_status().json()
        self.computed += self.computed_of(answer["usage"])
        self.prompts += answer["usage"]["prompt_tokens"]
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message

    def turn(self, number: int) -> None:
        """A question, a call, its result and the answer."""
        self.messages.append({"role": "user", "content": f"What is {number} + {number + 7}?"})
        message = self.ask({"type": "function", "function": {"name": "evaluate"}})
        calls = message.get("tool_calls")
        self.called += bool(calls)
        if not calls:  # a model that made none: the conversation goes on as if it had
            function = {"name": "evaluate", "arguments": json.dumps({"expression": f"{number} + {number + 7}"})}
            calls = [{"id": f"call{number}", "type": "function", "function": function}]
        self.messages.append({"role": "assistant", "content": message.get("content") or "", "tool_calls": calls[:1]})
        self.messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": str(2 * number + 7)})
        message = self.ask("none")
        self.messages.append({"role": "assistant", "content": message.get("content") or ""})


def sessions(url: str, model: str, count: int, computed_of: Callable[[dict[str, Any]], int]) -> tuple[int, str]:
    """So many sessions of twenty calls, in turn: tokens computed, and what is to be told of them."""
    agents = [
        Agent(url, model, computed_of, [{"role": "system", "content": f"You are agent {number} of {count}."}])
        for number in range(count)
    ]
    for number in range(CALLS):
        for agent in agents:
            agent.turn(number)
    computed, prompts, called = (
        sum(getattr(agent, of) for agent in agents) for of in ("computed", "prompts", "called")
    )
    return computed, f"{computed} of {prompts} tokens in prompts computed, {called} of {count * CALLS} calls its own"


def compare_sessions(folder: Path, counts: list[int]) -> None:
    """Sessions one at a time, and several that are served in turn."""
    for count in counts:
        with our_server("--model", str(folder)) as url:
            mine, told = sessions(url, "default", count, _computed_by_us)
        print(f"{count} sessions, ours:   {told}")
        with their_server(folder) as url:
            theirs, told = sessions(url, "default_model", count, _computed_by_them)
        print(f"{count} sessions, theirs: {told}; ratio {mine / theirs:.3f}")


def _computed_by_us(usage: dict[str, Any]) -> int:
    """Of the last round: a run that waits for its client's calls tells of all of its rounds each time."""
    computed: int = usage["tenuto"]["rounds"][-1]["computed_tokens"]
    return computed


def _computed_by_them(usage: dict[str, Any]) -> int:
    cached: int = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    prompt_tokens: int = usage["prompt_tokens"]
    return prompt_tokens - cached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="the folder that the sessions talk to")
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 12])
    parser.add_argument("--only", nargs="+", default=["decode", "serve", "session"])
    given = parser.parse_args()
    folder = random_model(given.layers, given.width)
    if "decode" in given.only:
        uvloop.run(decode(folder, given.sequences, given.repeat))
    if "serve" in given.only:
        serve(folder, given.sequences, given.repeat)
    if "session" in given.only:
        compare_sessions(given.model, given.agents)


if __name__ == "__main__":
    main()
