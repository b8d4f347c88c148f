"""A tour: a model calls tools, its sequence pauses and resumes for nothing, and kill -9 loses nothing.

Starts a server of its own with the embedded model, so it needs neither network nor weights. Run it by `make demo`.
ARGS="--model embedded:mlx" chooses its form.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from mcp import Client
from openai import OpenAI
from openai.types.chat import ChatCompletion
from server import OwnServer

SESSION = "tour"


def say(text: str) -> None:
    print(text, flush=True)


def ask(server: OwnServer, question: str, **extra: Any) -> ChatCompletion:
    """One turn over the openai client, its text streamed to the terminal, its pauses told afterwards."""
    client = OpenAI(base_url=f"{server.url}/v1", api_key="not-needed-on-loopback", max_retries=0)
    say(f"\nyou    {question}")
    answer = client.chat.completions.create(
        model="embedded",
        messages=[{"role": "user", "content": question}],
        extra_body={"session_id": SESSION, **extra},
    )
    tell(answer.model_dump())
    return answer


def tell(answer: dict[str, Any]) -> None:
    """What the model did: every call is a pause, every round after it a resume."""
    rounds = answer["usage"]["tenuto"]["rounds"]
    calls = answer["agentic_tool_calls"]
    for number, usage in enumerate(rounds, 1):
        verb = "resume" if number > 1 else "round "
        say(
            f"       {verb} {number}: {usage['prompt_tokens']} tokens of prompt, {usage['new_tokens']} of them new,"
            f" {usage['computed_tokens']} computed, {usage['cached_tokens']} from the cache ({usage['residency']})"
        )
        for call in (call for call in calls if call["round"] == number):
            say(f"       pause: {call['name']}({call['arguments']}) -> {call['result_content']}")
    message = answer["choices"][0]["message"]
    for call in message.get("tool_calls") or []:
        say(f"       pause: yours to run: {call['function']['name']}({call['function']['arguments']})")
    if message["content"]:
        say(f"model  {message['content']}")


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"the tour found that this does not hold: {what}")


def resumes_are_free(answer: ChatCompletion) -> None:
    """What the tour is about: a resumed round computes its new tokens and nothing else."""
    for usage in answer.model_dump()["usage"]["tenuto"]["rounds"][1:]:
        check(usage["computed_tokens"] == usage["new_tokens"], "a resumed round computes only the new tokens")


def a_conversation_with_tools(server: OwnServer) -> None:
    say("\n== A conversation with tools: the cache stays while a tool runs")
    answer = ask(server, "What is 17 * 23?")
    check("391" in (answer.choices[0].message.content or ""), "the answer has the tool's result")
    resumes_are_free(answer)
    resumes_are_free(ask(server, "What time is it in Tokyo?"))


def killed_between_turns(server: OwnServer) -> None:
    say("\n== kill -9 between two turns, then go on in the same session")
    server.kill()
    server.start()
    answer = ask(server, "What is 5 + 6?")
    check("11" in (answer.choices[0].message.content or ""), "the session goes on after kill -9")


def killed_while_an_approval_is_asked(server: OwnServer) -> None:
    say("\n== A call that asks for approval, kill -9 while it waits, and another client that approves")
    paused = ask(server, "Please calculate 12 * 12.", agent_permission="ask").model_dump()["tenuto"]
    check(paused["status"] == "paused", "a call under `ask` pauses the run")
    say(f"       the run waits for approval {paused['approval_id']}")
    server.kill()
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        decided = client.post(f"/v1/agent/approvals/{paused['approval_id']}", json={"decision": "approve"})
        decided.raise_for_status()
        with client.stream("GET", f"/v1/runs/{paused['run_id']}/events", params={"after": 0}) as events:
            for _ in events.iter_lines():
                pass  # until the run has ended
        run = client.get(f"/v1/runs/{paused['run_id']}").raise_for_status().json()
    say(f"model  {run['text']}")
    for number, usage in enumerate(run["usage"]["rounds"], 1):
        say(f"       round {number}: {usage['new']} tokens new, {usage['computed']} computed")
    check(run["status"] == "completed" and "144" in run["text"], "the run finishes after the restart")


def killed_while_your_tool_runs(server: OwnServer) -> None:
    say("\n== A tool that the client runs, kill -9 while it runs, and its result afterwards")
    tool = {
        "type": "function",
        "function": {
            "name": "clock__alarm",
            "description": "Set an alarm",
            "parameters": {"type": "object", "properties": {"time": {"type": "string"}}, "required": ["time"]},
        },
    }
    forced = {"type": "function", "function": {"name": "clock__alarm"}}
    answer = ask(server, "Wake me at 07:30.", tools=[tool], tool_choice=forced)
    calls = answer.choices[0].message.tool_calls or []
    check(len(calls) >= 1, "the forced call is there")
    server.kill()
    server.start()
    client = OpenAI(base_url=f"{server.url}/v1", api_key="not-needed-on-loopback", max_retries=0)
    done = client.chat.completions.create(
        model="embedded",
        messages=[{"role": "tool", "tool_call_id": call.id, "content": "alarm set"} for call in calls],
        extra_body={"session_id": SESSION, "tools": [tool]},
    )
    say("\nyou    (the result of your tool: alarm set)")
    tell(done.model_dump())
    check(done.choices[0].finish_reason in ("stop", "length"), "the paused run goes on with the result")


async def over_mcp(server: OwnServer) -> None:
    say("\n== The same server over MCP")

    async def progress(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
        if message:
            say(f"       progress: {message}")

    async with Client(f"{server.url}/mcp") as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        say(f"       tools: {', '.join(tools)}")
        arguments = {"session_id": SESSION + "-mcp", "message": "What is 9 * 8?"}
        result = await client.call_tool("chat", arguments, progress_callback=progress)
        structured = result.structured_content or {}
        say(f"model  {structured['text']}")
        check("72" in structured["text"], "the chat tool answers with the tool's result")
        sum_result = await client.call_tool("calculator__evaluate", {"expression": "2 ** 10"})
        check("1024" in str(sum_result.content), "the built-in tools are there as themselves")


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="tenuto-demo-") as folder,
        OwnServer(Path(folder) / "data", *sys.argv[1:]) as server,
    ):
        say(f"tenuto is at {server.url}, its data in {folder}")
        a_conversation_with_tools(server)
        killed_between_turns(server)
        killed_while_an_approval_is_asked(server)
        killed_while_your_tool_runs(server)
        asyncio.run(over_mcp(server))
        say("\nAll of it held.")


if __name__ == "__main__":
    main()
