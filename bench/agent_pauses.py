"""R3: agents that call tools all at once. From the first request to the last answer, less rounds x the tools' latency.

Each agent has a conversation of some turns; each turn forces a call, waits for the tool, and answers from its result.
Tenuto runs its own loop, with its engine in a process or in a thread, and the same outside loop drives it and
llama-server, with the same file, threads, and bytes of cache. Kinds of server are interleaved, so that what disturbs
one disturbs all. A model with random weights ends no answer by itself, so that its answers are as long as they may be;
as calls are not equally long, what is compared there is the time for a sampled token.

    python bench/agent_pauses.py [--models embedded 135m] [--agents 8 32] [--turns 10] [--latency 0 0.1 1] [--quick]
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import slow_server
from harness.agents import ANSWER_TOKENS, CALL_TOKENS, Agent, question
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import cores, has_peer, llama_server, tenuto

GOAL = 0.7
TURN_S = 900.0
SERVER = "slow"
UNGUESSED = " without drafts"


@dataclass(frozen=True)
class Load:
    """What the agents do."""

    model: str
    agents: int
    turns: int
    latency_s: float
    threads: int
    slots: int
    cells: int


@dataclass
class Kind:
    """A kind of server, and what agents took with it: seconds less waits for tools, and tokens that were sampled."""

    name: str
    took: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def each(self) -> list[float]:
        """Seconds for a sampled token."""
        return [took / tokens for took, tokens in zip(self.took, self.tokens, strict=True)]


@asynccontextmanager
async def our_server(load: Load, engine: str, *, guesses: bool, is_inside: bool) -> AsyncIterator[str]:
    """Tenuto with the tool behind it; its address."""
    with tempfile.TemporaryDirectory() as name:
        command = {"command": sys.executable, "args": [slow_server.__file__, str(load.latency_s)], "permission": "auto"}
        (config := Path(name) / "mcp.json").write_text(json.dumps({"mcpServers": {SERVER: command}}))
        flags = ["--threads", str(load.threads), "--slots", str(load.slots), "--context", str(load.cells)]
        flags += ["--mcp-config", str(config), "--engine", engine, "--queue-limit", "256"]
        flags += [] if guesses else ["--drafts", "0"]
        flags += ["--default-tools", f"{SERVER}__{slow_server.NAME}" if is_inside else "none"]
        with tenuto(model_file(load.model), *flags) as server:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                while (await client.get("/v1/mcp/servers")).json()["data"][0]["status"] != "ready":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            yield server.url


@asynccontextmanager
async def their_server(load: Load) -> AsyncIterator[str]:
    with llama_server(model_file(load.model), slots=load.slots, cells=load.cells, threads=load.threads) as server:
        yield server.url


async def inside(client: httpx.AsyncClient, load: Load, agent: int) -> int:
    """An agent whose tools the server calls; tokens that were sampled for it."""
    sampled = 0
    forced = {"type": "function", "function": {"name": f"{SERVER}__{slow_server.NAME}"}}
    for turn in range(load.turns):
        body = {
            "session_id": f"agent-{agent}",
            "messages": [question(agent, turn)],
            "tool_choice": forced,
            "parallel_tool_calls": False,
            "max_tokens": CALL_TOKENS + ANSWER_TOKENS,
            "temperature": 0,
        }
        answer = (await client.post("/v1/chat/completions", json=body)).raise_for_status().json()
        assert len(answer["agentic_tool_calls"]) == 1, answer
        sampled += answer["usage"]["completion_tokens"]
    return sampled


async def outside(client: httpx.AsyncClient, load: Load, agent: int) -> int:
    """An agent that calls its tools itself, and sends all of its conversation each time."""
    talker = Agent(agent, load.latency_s, is_random=load.model != "embedded")
    answers = [answer for turn in range(load.turns) for answer in await talker.turn(client, turn)]
    return sum(answer["usage"]["completion_tokens"] for answer in answers)


async def run(kind: Kind, load: Load) -> None:
    """One run of all agents, behind one turn of one more, so that nothing is done for the first time."""
    _, _, engine = kind.name.removesuffix(UNGUESSED).partition(" ")
    is_inside = engine.startswith("inside")
    server = (
        our_server(load, engine.split()[-1], guesses=not kind.name.endswith(UNGUESSED), is_inside=is_inside)
        if engine
        else their_server(load)
    )
    drive = inside if is_inside else outside
    limits = httpx.Limits(max_connections=None)
    async with server as address, httpx.AsyncClient(base_url=address, timeout=TURN_S, limits=limits) as client:
        await drive(client, replace(load, turns=1), load.agents)
        began = time.perf_counter()
        sampled = await asyncio.gather(*(drive(client, load, agent) for agent in range(load.agents)))
        took = time.perf_counter() - began
    kind.took.append(took - load.turns * load.latency_s)
    kind.tokens.append(sum(sampled))


def report(measure: Measure, kinds: list[Kind], load: Load) -> None:
    case = f"{load.model}, {load.agents} agents, {load.latency_s:g} s"
    is_random = load.model != "embedded"
    last = kinds[-1].each if is_random else kinds[-1].took
    for kind in kinds:
        mine = kind.each if is_random else kind.took
        ratios = sorted(one / other for one, other in zip(mine, last, strict=True))
        measure.row(
            case=case,
            kind=kind.name,
            seconds=statistics.median(kind.took),
            tokens=int(statistics.median(kind.tokens)),
            ratio=statistics.median(ratios),
            by_pairs=" ".join(f"{ratio:.2f}" for ratio in ratios),
        )
        if kind.name == NAMES["process"] and kinds[-1].name == NAMES["peer"]:
            at_most = GOAL if load.latency_s < 10 else None
            what = " for a token" if is_random else ""
            measure.figure(f"{case}: time{what} / llama-server's", statistics.median(ratios), at_most=at_most)


NAMES = {
    "process": "tenuto inside process",
    "process-plain": f"tenuto inside process{UNGUESSED}",
    "thread": "tenuto inside thread",
    "outside": "tenuto outside process",
    "outside-thread": "tenuto outside thread",
    "peer": "llama-server",
}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--models", choices=MODELS, nargs="+", default=["embedded", "135m"])
    parser.add_argument("--agents", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--turns", type=int, help="default: 10, of models with random weights 4")
    parser.add_argument("--latency", type=float, nargs="+", default=[0.0, 0.1, 1.0])
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--cells", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=[*NAMES], default=["process", "outside", "peer"])
    given = parser.parse_args()
    if given.quick:
        given.latency, given.runs = [0.0], 1
    measure = Measure("R3", "agents that call tools: time less the tools' / llama-server's", given.quick)
    if "peer" in given.kinds and not has_peer():
        given.kinds.remove("peer")
        measure.note("llama-server is not built: nothing to compare with")
    for model in given.models:
        turns = given.turns or (10 if model == "embedded" else 4)
        for agents in given.agents if not given.quick or model == "embedded" else given.agents[:1]:
            for latency_s in given.latency:
                few = min(turns, 4 if agents > 8 else 10) if given.quick else turns
                load = Load(model, agents, few, latency_s, given.threads, given.slots, given.cells)
                kinds = [Kind(NAMES[name]) for name in given.kinds]
                for _ in range(given.runs):
                    for kind in kinds:
                        asyncio.run(run(kind, load))
                report(measure, kinds, load)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
