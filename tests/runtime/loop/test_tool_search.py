"""More tools than a context should hold are searched for: the block stays, and what is found can be called."""

import json
import threading
from typing import Any

import pytest
from llguidance import LLMatcher

from tenuto.pipelines import constraints
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.loop.requests import Limits, ToolSelection
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.sessions.items import AssistantItem, ToolResultItem
from tenuto.sessions.records import RunStatus
from tenuto.tools.approvals import Rules
from tenuto.tools.spec import CallContext, Tool, ToolResult
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import Process, asks, call, client_tools, says
from tests.runtime.loop.test_which_tools_the_model_sees import seen
from tests.runtime.loop.tools import Tools, spec

CELLS = 4096
SERVERS = ("mail", "files", "weather", "tickets", "maps", "music", "bank")
DOES = ("list", "find", "create", "remove", "rename", "copy", "send", "count")


class Many:
    """A server with eight tools, each of which does another thing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.called: list[str] = []

    async def list(self) -> list[Tool]:
        return [Tool(spec(f"{does}_{self.name}", what="string")) for does in DOES]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        self.called.append(name)
        return ToolResult(f"{name} of {arguments['what']}: done")


SEARCH = call("tool_search", query="send mail")
SEND = call("mail__send_mail", what="news")
RULES = [
    {"tool_contains": "send_mail of news: done", "text": "it is sent"},
    {"tool_contains": '"mail__send_mail"', "calls": [SEND]},
    asks("send the news", SEARCH),
    asks("again", SEND),
    says("hi", "hello"),
]
CROWD: dict[str, Any] = {"script": {"cells": CELLS}, "servers": ["calculator", *SERVERS]}


@pytest.fixture
def tools() -> Tools:
    crowd = Tools()
    for name in SERVERS:
        vars(crowd)[name] = Many(name)
    return crowd


async def results(process: Process) -> list[ToolResultItem]:
    return [item for item in await process.items() if isinstance(item, ToolResultItem)]


async def test_the_model_sees_small_servers_and_a_search_for_the_others(open_process: Open) -> None:
    process = await open_process(*RULES, **CROWD)
    done = await process.ask("hi")
    names = await seen(process)
    assert names[0] == "calculator__evaluate"
    assert names.count("tool_search") == 1
    assert 0 < len(names) < 20
    assert done.usage.prompt <= CELLS // 4 + 256
    assert not done.diagnostics


async def test_what_is_found_is_called_and_the_prefix_stays(open_process: Open) -> None:
    process = await open_process(*RULES, **CROWD)
    done = await process.ask("send the news")
    assert done.text == "it is sent"
    search, sent = await results(process)
    assert (search.name, sent.name) == ("tool_search", "mail__send_mail")
    assert search.structured["tools"][0] == "mail__send_mail"
    assert vars(process.tools)["mail"].called == ["send_mail"]
    assert [usage.cached > 0 for usage in done.usage.rounds] == [False, True, True]
    for usage in done.usage.rounds[1:]:
        assert usage.computed <= usage.new


async def test_what_was_found_is_callable_in_later_turns_and_after_a_restart(open_process: Open) -> None:
    process = await open_process(*RULES, **CROWD)
    await process.ask("send the news")
    assert (await process.ask("again")).text == "it is sent"
    await process.stop()
    restarted = await open_process(*RULES, **CROWD, left=process.url)
    assert (await restarted.ask("again")).text == "it is sent"
    assert len(await results(restarted)) == 4


async def test_what_was_not_found_cannot_be_said(open_process: Open) -> None:
    process = await open_process(asks("again", SEND), **CROWD)
    await process.ask("again")
    calls = [one for item in await process.items() if isinstance(item, AssistantItem) for one in item.calls]
    assert "mail__send_mail" not in {one.name for one in calls}


async def test_a_search_asks_nobody_and_what_it_found_does(open_process: Open) -> None:
    configured = {name: Rules() for name in SERVERS}
    process = await open_process(*RULES, **CROWD, configured=configured)
    asked = await process.ask("send the news", wants_events=True)
    assert asked.status is RunStatus.PAUSED
    assert vars(process.tools)["mail"].called == []
    assert [one.name for one in await results(process)] == ["tool_search"]


@pytest.mark.parametrize(
    "selection",
    [
        ToolSelection(given=True, servers={name: (f"send_{name}",) for name in SERVERS}),
        ToolSelection(choice=ToolChoice.NONE),
        client_tools(spec("tool_search", query="string"), servers={"mail": None}),
    ],
)
async def test_who_chooses_tools_or_has_a_search_of_its_own_is_shown_what_it_chose(
    open_process: Open, selection: ToolSelection
) -> None:
    process = await open_process(*RULES, **CROWD)
    await process.ask("hi", tools=selection)
    names = await seen(process)
    assert "tool_search" not in names or selection.client


async def test_servers_that_a_request_names_are_searched_too(open_process: Open) -> None:
    process = await open_process(*RULES, **CROWD)
    selection = client_tools(servers=dict.fromkeys(SERVERS))
    done = await process.ask("send the news", tools=selection)
    names = await seen(process)
    assert {"weather", "tool_search"} <= {*names}
    assert done.text == "it is sent"


async def test_a_share_of_one_turns_it_off(open_process: Open) -> None:
    process = await open_process(*RULES, **CROWD, defaults=Defaults(tool_share=1.0))
    await process.ask("hi")
    assert "tool_search" not in await seen(process)


@pytest.mark.parametrize("rounds", [0, 1])
async def test_tools_that_no_round_could_call_are_not_searched_for(open_process: Open, rounds: int) -> None:
    process = await open_process(*RULES, **CROWD)
    await process.ask("hi", limits=Limits(max_tool_rounds=rounds))
    assert "tool_search" not in await seen(process)


async def test_no_grammar_is_compiled_on_the_event_loop(open_process: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[threading.Thread] = []

    def matcher(*given: Any, **more: Any) -> LLMatcher:
        compiled.append(threading.current_thread())
        return LLMatcher(*given, **more)

    process = await open_process(*RULES, **CROWD)
    await process.ask("send the news")
    monkeypatch.setattr(constraints, "LLMatcher", matcher)
    done = await process.ask("again", tools=ToolSelection(choice=ToolChoice.REQUIRED, parallel=False))
    assert done.text == "it is sent"
    assert compiled
    assert threading.current_thread() not in compiled


async def test_a_search_that_finds_nothing_names_the_servers(open_process: Open) -> None:
    rules = [{"tool_contains": "No tool fits", "text": "no"}, asks("help", call("tool_search", query="xylophone"))]
    process = await open_process(*rules, **CROWD)
    assert (await process.ask("help")).text == "no"
    (search,) = await results(process)
    assert "mail" in search.text


async def test_what_is_told_of_a_tool_is_its_definition(open_process: Open) -> None:
    process = await open_process(*RULES, **CROWD)
    await process.ask("send the news")
    search, _ = await results(process)
    first = json.loads(search.text.splitlines()[1])
    assert first["name"] == "mail__send_mail"
    assert first["parameters"]["required"] == ["what"]
