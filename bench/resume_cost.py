"""R1: tokens computed / tokens that are new, in sessions of 20 tool calls, through the server as users get it.

Several sessions are served in turn, so that with more of them than slots their caches give way to each other. New is
what a prompt has beyond all that its session had a cache of when it last stopped. llama-server is asked the same by an
agent that calls its tools itself; its new tokens are counted from what it tells of each answer.

    python bench/resume_cost.py [--models scripted embedded] [--sessions 1 16 32] [--slots 4] [--quick]
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import httpx
from harness.agents import Agent, question
from harness.models import model_file
from harness.results import Measure, arguments
from harness.servers import has_peer, llama_server, tenuto

CALLS = 20
CELLS = 4096
GOAL = 1.02
RULES = [
    {
        "user_matches": r"What is (?P<sum>\d+ \+ \d+)",
        "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "${sum}"}}],
    },
    {"tool_contains": "", "text": "It is ${tool}."},
]


def ours(url: str, sessions: int, calls: int) -> tuple[int, int]:
    """Turns with a forced call each, by the server's own loop; tokens that were computed, and that were new."""
    computed = new = 0
    forced = {"type": "function", "function": {"name": "calculator__evaluate"}}
    body = {"tool_choice": forced, "parallel_tool_calls": False, "max_tokens": 120}
    with httpx.Client(base_url=url, timeout=120) as client:
        for turn in range(calls):
            for session in range(sessions):
                asked = {**body, "session_id": f"r1-{session}", "messages": [question(session, turn)]}
                answer = client.post("/v1/chat/completions", json=asked).raise_for_status().json()
                assert len(answer["agentic_tool_calls"]) == 1, answer
                for round in answer["usage"]["tenuto"]["rounds"]:
                    computed += round["computed_tokens"]
                    new += round["new_tokens"]
    return computed, new


async def theirs(url: str, sessions: int, calls: int) -> tuple[int, int]:
    """The same by agents that call their tools themselves."""
    computed = new = 0
    agents = [Agent(number) for number in range(sessions)]
    cached = [0] * sessions  # what each session has had a cache of: all but the last token that was sampled
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for turn in range(calls):
            for agent in agents:
                for answer in await agent.turn(client, turn):
                    timings, usage = answer["timings"], answer["usage"]
                    computed += timings["prompt_n"]
                    new += usage["prompt_tokens"] - cached[agent.number]
                    cached[agent.number] = usage["total_tokens"] - 1
    return computed, new


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--models", choices=["scripted", "embedded"], nargs="+", default=["scripted", "embedded"])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 16, 32])
    parser.add_argument("--slots", type=int, default=4)
    given = parser.parse_args()
    calls = CALLS
    if given.quick:
        given.sessions, calls = [1, 8], 10
    measure = Measure("R1", f"tokens computed / tokens that are new, in sessions of {calls} tool calls", given.quick)
    is_compared = has_peer()
    for name in given.models:
        for sessions in given.sessions:
            with tempfile.TemporaryDirectory() as folder:
                script = Path(folder) / "script.json"
                cells = given.slots * 16_384
                script.write_text(json.dumps({"rules": RULES, "cells": cells, "slots": given.slots}))
                flags = [] if name == "scripted" else ["--slots", str(given.slots), "--context", str(CELLS)]
                with tenuto(f"scripted:{script}" if name == "scripted" else model_file(name), *flags) as server:
                    computed, new = ours(server.url, sessions, calls)
            case = {"model": name, "sessions": sessions, "slots": given.slots}
            measure.row(**case, kind="tenuto", computed=computed, new=new, ratio=computed / new)
            measure.figure(f"{name}, sessions: {sessions}: computed / new", computed / new, at_most=GOAL)
            if is_compared and name != "scripted":
                with llama_server(model_file(name), slots=given.slots, cells=CELLS) as server:
                    computed, new = asyncio.run(theirs(server.url, sessions, calls))
                measure.row(**case, kind="llama-server", computed=computed, new=new, ratio=computed / new)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
