"""An engine over the scripted pipeline, and a turnstile before its steps, so that tests need neither luck nor sleep."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tenuto.pipelines.backend import Pending, Row, Sampled, Sampling, Snapshot
from tenuto.pipelines.base import GrammarSource, Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.scripted import TEMPLATE, ScriptedBackend, ScriptedTokenizer, read_script
from tenuto.pipelines.scripted.backend import ScriptedSampler
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Failed, Residency, Round, RoundUsage, State, Stopped, TokensSampled
from tenuto.runtime.loop.engine_client import REMEMBERED_TOKENS, EngineClient, QueueLimits
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, UserItem
from tenuto.sessions.tokens import Tokens
from tests.patience import HANGS_S

WAIT_S = HANGS_S
STOPS = ScriptedTokenizer().stop_tokens


class Watched(ScriptedBackend):
    """The scripted backend, watched: what was fed, sampled with and copied out. Closed, it lets no step through."""

    def __init__(self, path: Path) -> None:
        super().__init__(read_script(path))
        self.steps: list[list[Row]] = []
        self.samplers: list[ScriptedSampler] = []
        self.snapshots: list[int] = []
        self.broken: set[str] = set()
        """The methods that raise."""
        self._is_shut = False
        self._passes = threading.Semaphore(0)
        self._loop = asyncio.get_running_loop()
        self._stands = asyncio.Event()

    def shut(self) -> None:
        """Let no step through from now on."""
        self._is_shut = True

    def open(self) -> None:
        """Let all through."""
        self._is_shut = False
        self._passes.release()

    async def stands(self) -> None:
        """Wait until the engine stands before a step. What it said before has been read."""
        with anyio.fail_after(WAIT_S):
            await self._stands.wait()

    async def let(self, steps: int = 1) -> None:
        """Let steps through, and wait until the engine stands before the one after."""
        for _ in range(steps):
            await self.let_last()
            await self.stands()

    async def let_last(self) -> None:
        """Let a step through after which there may be none."""
        await self.stands()
        self._stands.clear()
        self._passes.release()

    def held(self, slot: int) -> list[int]:
        """The tokens in a slot. Only while the engine stands or is idle."""
        return list(super().snapshot(slot).data.view("int32"))

    def sampler(self, sampling: Sampling, before: Sequence[int] = (), said: Sequence[int] = ()) -> ScriptedSampler:
        made = super().sampler(sampling, before, said)
        self.samplers.append(made)
        return made

    def launch(self, rows: Sequence[Row]) -> Any:
        if self._is_shut:
            self._loop.call_soon_threadsafe(self._stands.set)
            assert self._passes.acquire(timeout=2 * WAIT_S)
        self.steps.append(list(rows))
        return super().launch(rows)

    def collect(self, pending: Pending) -> Sampled:
        sampled = super().collect(pending)
        return sampled[1:] if "collect" in self.broken else sampled

    def fork(self, source: int, target: int, tokens: int) -> None:
        self._break("fork")
        super().fork(source, target, tokens)

    def truncate(self, slot: int, tokens: int) -> bool:
        self._break("truncate")
        return super().truncate(slot, tokens)

    def release(self, slot: int) -> None:
        self._break("release")
        super().release(slot)

    def snapshot(self, slot: int) -> Snapshot:
        self._break("snapshot")
        snapshot = super().snapshot(slot)
        self.snapshots.append(slot)
        return snapshot

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        self._break("restore")
        super().restore(slot, snapshot)

    def _break(self, method: str) -> None:
        if method in self.broken:
            raise OSError(f"{method} is broken")


@dataclass
class Reading:
    """A round that is read as it comes."""

    stream: OpenRound
    seen: list[int] = field(default_factory=list)
    """All that the sequence's model has seen, to which the round adds."""
    tokens: list[int] = field(default_factory=list)
    end: Stopped | Failed | None = None
    task: "asyncio.Task[None] | None" = None

    async def follow(self) -> None:
        async for event in self.stream:
            match event:
                case TokensSampled():
                    self.tokens += event.tokens
                    self.seen += event.tokens
                case Stopped() | Failed():
                    self.end = event

    async def stopped(self) -> Stopped:
        """Wait for the end, which is a good one."""
        end = await self.ended()
        assert isinstance(end, Stopped), end
        return end

    async def failed(self) -> Failed:
        """Wait for the end, which is a bad one."""
        end = await self.ended()
        assert isinstance(end, Failed), end
        return end

    async def ended(self) -> Stopped | Failed:
        assert self.task is not None
        with anyio.fail_after(WAIT_S):
            await self.task
        assert self.end is not None
        return self.end


@dataclass
class Rig:
    """An engine, its backend and what a test needs to talk to it."""

    engine: EngineClient
    backend: Watched
    codec: TemplateCodec
    spent: list[RoundUsage]
    """What each round has cost that is over."""
    seen: dict[str, list[int]] = field(default_factory=dict)
    rounds: dict[str, OpenRound] = field(default_factory=dict)
    """The last of each sequence."""

    def begin(
        self,
        sequence: str,
        tokens: Sequence[int],
        principal: str = "alice",
        named: int = 0,
        said: Sequence[int] = (),
        **options: Any,
    ) -> Reading:
        """Submit a round and read it."""
        stream = self.engine.submit(sequence, tokens, round_of(**options), principal=principal, named=named, said=said)
        self.seen[sequence] = [*tokens, *said]
        return self.read(stream, self.seen[sequence])

    def resume(
        self, sequence: str, offset: int, tokens: Sequence[int], principal: str = "alice", **options: Any
    ) -> Reading:
        """Go on after the first `offset` tokens, which are named alone, and read."""
        seen = self.seen[sequence] = [*self.seen[sequence][:offset], *tokens]
        stream = self.engine.submit(
            sequence,
            tokens,
            round_of(**options),
            principal=principal,
            known=Tokens(seen[:offset]).prefix(),
            whole=seen.copy,
        )
        return self.read(stream, seen)

    def prompt(self, text: str) -> list[int]:
        """A conversation that begins with a user's text, to be answered."""
        return self.after((), UserItem(text))

    def answer(self, text: str) -> list[int]:
        """What the script says to say a text."""
        return [*self.codec.tokenize(text), *STOPS]

    def after(self, before: Sequence[Item], *new: Item) -> list[int]:
        """The tokens of new items, and those that open the answer."""
        rendered = self.codec.suffix(before, new, [], ended=True)
        return [token for item in rendered.items for token in item] + list(rendered.opening)

    def result(self, text: str) -> list[int]:
        """The tokens of a tool's result after an answer."""
        return self.after([UserItem("?"), AssistantItem("!")], ToolResultItem("call", "tool", text))

    def count(self, state: State) -> int:
        """How many sequences are in a state."""
        return self.engine.status.sequences[state]

    async def idle(self) -> None:
        """Wait until all commands so far are done. They are done in order, so one that is refused tells."""
        await self.begin("nobody", []).failed()

    def cancel(self, sequence: str) -> None:
        """Cancel a sequence's last round, if it has had one."""
        if sequence in self.rounds:
            self.rounds[sequence].cancel()

    def read(self, stream: OpenRound, seen: list[int] | None = None) -> Reading:
        """Read a round as it comes."""
        self.rounds[stream.command.sequence] = stream
        reading = Reading(stream, [] if seen is None else seen)
        reading.task = asyncio.create_task(reading.follow())
        return reading


def round_of(
    max_tokens: int = 1000,
    stop: Sequence[str] = (),
    grammar: GrammarSource | None = None,
    temperature: float = 0.0,
) -> Round:
    return Round(max_tokens, Sampling(temperature), STOPS, tuple(stop), grammar)


def build(path: Path, rules: Sequence[dict[str, Any]], engine: dict[str, Any], script: dict[str, Any]) -> Rig:
    """An engine over a script; `engine` are its settings, `script` those of the backend."""
    path.write_text(json.dumps({"rules": list(rules), **script}))
    backend = Watched(path)
    codec = TemplateCodec("scripted", ScriptedTokenizer(), TEMPLATE)
    limits = QueueLimits(engine.pop("queue", 64), engine.pop("remembered_tokens", REMEMBERED_TOKENS))
    thread = Engine(Pipeline(codec, backend), EngineSettings(**engine))
    spent: list[RoundUsage] = []
    client = EngineClient("scripted", backend.info.slots, thread, limits, spent.append)
    return Rig(client, backend, codec, spent)


def assert_nothing_is_left(rig: Rig) -> None:
    """No round is open, no sampler is, and no byte of cache is held."""
    state = rig.engine.status
    assert set(state.sequences.values()) == {0}
    assert state.cache_bytes == {Residency.DEVICE: 0, Residency.HOST: 0}
    assert not any(sampler.is_open for sampler in rig.backend.samplers)


Make = Callable[..., Rig]
