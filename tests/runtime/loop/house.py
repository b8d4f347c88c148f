"""The loop as one process has it: the real runner over a database file, a scripted model and tools, and its crash."""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from tenuto.pipelines.base import Pipeline, ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.sampling_defaults import GREEDY
from tenuto.pipelines.scripted import TEMPLATE, LooseCodec, Script, ScriptedBackend, ScriptedTokenizer
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.port import EnginePort
from tenuto.runtime.loop.engine_client import EngineClient, QueueLimits
from tenuto.runtime.loop.events import Answer, RunEvent
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.models import Model, Models
from tenuto.runtime.loop.policy import Policy
from tenuto.runtime.loop.requests import Limits, SessionMode, ToolSelection, Turn
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runner import Runner
from tenuto.runtime.loop.services import Expiries, Services
from tenuto.runtime.loop.sharing import SharedPrefixes, Sharing
from tenuto.runtime.loop.shelf import Fixed
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.runtime.metrics import Metrics
from tenuto.runtime.notes import Notebooks
from tenuto.sessions.directory import Directory
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.principal import Principal
from tenuto.sessions.session import Session
from tenuto.sessions.storage.store import Store
from tenuto.tools.approvals import Permission, Rules
from tenuto.tools.builtin import Calculator, Notes
from tenuto.tools.registry import CallLimits, Registry
from tenuto.tools.spec import ToolServer
from tests.patience import HANGS_S
from tests.runtime.loop.tools import Tools, spec

PATIENCE_S = HANGS_S
DAY = 24 * 3600.0

Rule = dict[str, Any]

ALICE = Principal("alice")
WEATHER = spec("weather", city="string")
"""A tool that the client runs."""


@dataclass
class Clock:
    """Seconds since the epoch, as the test wants them."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A call in a rule's answer."""
    return {"name": name, "arguments": arguments}


def asks(user: str, *calls: dict[str, Any], text: str = "", **more: Any) -> Rule:
    """When the user says this, the model calls."""
    return {"user": user, "calls": list(calls), "text": text, **more}


def says(user: str, text: str, **more: Any) -> Rule:
    """When the user says this, the model says that."""
    return {"user": user, "text": text, **more}


def client_tools(*tools: Any, **more: Any) -> ToolSelection:
    """The client's own tools, and no server's."""
    return ToolSelection(given=True, client=tuple(tools or (WEATHER,)), **more)


@cache
def codec() -> TemplateCodec:
    """The codec of every scripted model; immutable."""
    return TemplateCodec("scripted", ScriptedTokenizer(), TEMPLATE)


@cache
def loose_codec() -> TemplateCodec:
    """The same, where nothing holds calls to their form."""
    return LooseCodec("scripted", ScriptedTokenizer(), TEMPLATE)


@cache
def other_codec() -> TemplateCodec:
    """A model of the same vocabulary with a template of its own."""
    return TemplateCodec("other", ScriptedTokenizer(), TEMPLATE.replace("Called as", "To be called as"))


@dataclass
class Setup:
    """How a process is set up. A second one on the files of a first is given the same."""

    rules: Sequence[Rule] = ()
    script: Mapping[str, Any] = field(default_factory=dict)
    servers: Sequence[str] = ("calculator", "notes", "count", "slow", "broken", "big")
    limits: Mapping[str, CallLimits] = field(default_factory=dict)
    configured: Mapping[str, Rules] = field(default_factory=dict)
    everywhere: Permission | None = None
    defaults: Defaults = field(default_factory=Defaults)
    queue: int = 64
    sharing: Sharing = "none"
    engine: Callable[[Pipeline], EnginePort] = Engine
    holds_calls: bool = True


class Process:
    """What one process has. `run` it in a task of its own; `ready` and `leave` say when."""

    def __init__(self, url: str, setup: Setup, clock: Clock, tools: Tools) -> None:
        self.url, self.setup, self.clock, self.tools = url, setup, clock, tools
        self.ready, self._leave = asyncio.Event(), asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Compose all, serve until told to leave, and free all."""
        setup = self.setup
        self.store = await anyio.to_thread.run_sync(Store.open, self.url)
        self.directory = Directory(self.store, clock=self.clock)
        servers: dict[str, ToolServer] = {
            "calculator": Calculator(),
            "notes": Notes(Notebooks(self.directory, self.store)),
            **vars(self.tools),
        }
        self.registry = Registry([servers[name] for name in setup.servers], setup.limits)
        await self.registry.refresh()
        script = {"cells": 16384, "rules": list(setup.rules), **setup.script}
        self.backends = {name: ScriptedBackend(Script.model_validate(script)) for name in ("scripted", "other")}
        codecs = {"scripted": codec() if setup.holds_calls else loose_codec(), "other": other_codec()}
        models = []
        for name, backend in self.backends.items():
            engine = setup.engine(Pipeline(codecs[name], backend))
            client = EngineClient(name, backend.info.slots, engine, QueueLimits(setup.queue))
            models.append(Model(name, codecs[name], client, backend.info, self.clock(), GREEDY))
        self.models = Models(Fixed(models))
        services = Services(
            self.store,
            self.directory,
            self.models,
            self.registry,
            Policy(self.registry, setup.configured, setup.everywhere),
            Metrics(),
            Expiries(),
            self.clock,
            SharedPrefixes(setup.sharing),
        )
        try:
            async with Runner(services, setup.defaults) as self.runner:
                self.ready.set()
                await self._leave.wait()
        finally:
            for model in models:
                await model.engine.stop()
            self.store.close()

    async def begin(self) -> "Process":
        """Run it in a task, and return when it is ready."""
        self.task = asyncio.create_task(self.run())
        waiting = asyncio.create_task(self.ready.wait())
        await asyncio.wait({self.task, waiting}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done():
            self.task.result()
        assert self.ready.is_set()
        return self

    async def stop(self) -> None:
        """Shut down, as by SIGTERM after the drain's time is over."""
        assert self.task is not None
        self._leave.set()
        await asyncio.wait_for(asyncio.shield(self.task), PATIENCE_S)

    def left_behind(self, folder: Path) -> str:
        """What kill -9 would leave now: a copy of the database's files as they are, by its URL."""
        folder = folder / uuid4().hex
        folder.mkdir()
        path = Path(self.url.removeprefix("sqlite:///"))
        for suffix in ("", "-wal"):  # the shared-memory index is made anew from these
            if (one := path.with_name(path.name + suffix)).exists():
                shutil.copyfile(one, folder / one.name)
        return f"sqlite:///{folder / path.name}"

    # Requests.

    async def start(self, said: str | Sequence[Any], id: str | None = "s", **fields: Any) -> Follower:
        """Begin a run; without `id`, the session is found by matching."""
        with anyio.fail_after(PATIENCE_S):
            return await self.runner.start(turn(said, id, **fields))

    async def ask(self, said: str | Sequence[Any], id: str | None = "s", **fields: Any) -> Answer:
        """Begin a run and wait for its answer."""
        return await answer(await self.start(said, id, **fields))

    async def decide(self, pause: str | None, approve: bool, *, principal: str = "alice", **more: Any) -> Run:
        """Answer an approval."""
        assert pause is not None
        with anyio.fail_after(PATIENCE_S):
            given = {"message": None, "remember": False, **more}
            return await self.runner.decide(Principal(principal), pause, approve=approve, **given)

    async def cancel(self, run: Run | Follower, principal: str = "alice") -> Run:
        """Cancel a run."""
        with anyio.fail_after(PATIENCE_S):
            return await self.runner.cancel(Principal(principal), run.id)

    # What there is.

    async def session(self, id: str = "s", principal: str = "alice") -> Session:
        """A session as this process has it; its copy in the store is the same, where it is to have one."""
        session = await self.directory.get(principal, id)
        assert session is not None
        kept = await self.store.session(principal, id)
        assert (kept is not None) is session.stored
        if kept is None:
            return session
        covering = {name: ledger for name, ledger in session.ledgers.items() if ledger.items}
        assert kept == replace(session, ledgers=covering), "a ledger without items is not kept"
        return session

    async def items(self, id: str = "s") -> list[Item]:
        """A session's items."""
        return list((await self.session(id)).items)

    async def tokens(self, id: str = "s") -> str:
        """The text of the tokens of a session that has one ledger."""
        (ledger,) = (await self.session(id)).ledgers.values()
        return codec().detokenize(ledger.tokens)


def turn(said: str | Sequence[Any], id: str | None = "s", **fields: Any) -> Turn:
    """A request; `max_tokens` and its like are limits, `choice` is that of tools."""
    items = (UserItem(said),) if isinstance(said, str) else tuple(said)
    limits = {name: fields.pop(name) for name in ("max_tokens", "max_tool_rounds", "deadline_s") if name in fields}
    fields["principal"] = Principal(fields.pop("principal", "alice"))
    defaults: dict[str, Any] = {"model": None}
    if "choice" in fields:
        fields["tools"] = ToolSelection(choice=ToolChoice(fields.pop("choice")))
    if "mode" in fields:
        fields["mode"] = SessionMode(fields["mode"])
    return Turn(**{**defaults, "items": items, "session_id": id, "limits": Limits(**limits), **fields})


async def answer(run: Run | Follower) -> Answer:
    """The whole answer of a run's present leg."""
    with anyio.fail_after(PATIENCE_S):
        return await (Follower(run) if isinstance(run, Run) else run).answer()


async def events(run: Run | Follower, after: int | None = None) -> list[RunEvent]:
    """The events of a run's present leg."""
    with anyio.fail_after(PATIENCE_S):
        return [event async for _, event in run.events(after)]


async def until(run: Run | Follower, kind: type[RunEvent]) -> RunEvent:
    """The next event of that kind."""
    with anyio.fail_after(PATIENCE_S):
        async for _, event in run.events():
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the run came to its end without {kind.__name__}")


def history(items: Sequence[Item]) -> list[Item]:
    """What a stock client would repeat of a session: no call and no result of a server's tool, and no reasoning."""
    shown: list[Item] = []
    for item in items:
        match item:
            case AssistantItem():
                calls = tuple(ToolCall(one.id, one.name, one.arguments) for one in item.calls if not one.server)
                shown.append(AssistantItem(item.text, calls=calls))
            case ToolResultItem() if item.server:
                pass
            case _:
                shown.append(item)
    return shown
