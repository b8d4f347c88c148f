"""Agents of openai-agents, over Responses; run in an environment that has it, with a server's address and a model.

Prints what came of each of its ways to run an agent and to go on with it.
"""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, HostedMCPTool, ModelSettings, Runner, function_tool, set_tracing_disabled
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from pydantic import BaseModel

SUM = "What is 17 * 23?"
BRIEF: dict[str, Any] = {"temperature": 0, "max_tokens": 200}


class Point(BaseModel):
    """What an agent may have to answer with."""

    a: int


def weather(city: str) -> str:
    """Tell the weather."""
    return f"sun over {city}"


def agent(url: str, model: str, **more: Any) -> Any:
    """One that has not talked to anybody."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    settings = {"model_settings": ModelSettings(**BRIEF), **more}
    return Agent(name="Ann", instructions="Be brief.", model=OpenAIResponsesModel(model, client), **settings)


def with_tool(url: str, model: str, choice: str | None = None) -> Any:
    """One with a tool of its own, which it may have to call first."""
    settings = ModelSettings(**BRIEF, tool_choice=choice)
    return agent(url, model, tools=[function_tool(weather)], model_settings=settings)


def with_server(url: str, model: str, allowed: list[str]) -> Any:
    """One that calls tools of the server's, each of which it is asked about."""

    def allow(request: Any) -> Any:
        allowed.append(request.data.name)
        return {"approve": True}

    config: Any = {"type": "mcp", "server_label": "calculator", "require_approval": "always"}
    return agent(url, model, tools=[HostedMCPTool(tool_config=config, on_approval_request=allow)])


async def driven(url: str, model: str) -> dict[str, Any]:
    """What came of everything that is awaited."""
    whole = await Runner.run(with_tool(url, model, "weather"), "the weather in Ulm")
    thanks: Any = [*whole.to_input_list(), {"role": "user", "content": "thanks"}]
    whole_again = await Runner.run(with_tool(url, model), thanks)

    streamed = Runner.run_streamed(with_tool(url, model, "weather"), "the weather in Bonn")
    kinds = [event.type async for event in streamed.stream_events()]
    chained = await Runner.run(with_tool(url, model), "thanks", previous_response_id=streamed.last_response_id)

    allowed: list[str] = []
    counted = await Runner.run(with_server(url, model, allowed), SUM)
    pointed = await Runner.run(agent(url, model, output_type=Point), '{"a": 7}')
    return {
        "whole": whole.final_output,
        "whole_again": whole_again.final_output,
        "streamed": streamed.final_output,
        "kinds": sorted({*kinds}),
        "chained": chained.final_output,
        "allowed": allowed,
        "counted": counted.final_output,
        "pointed": isinstance(pointed.final_output, Point),
    }


def main() -> None:
    """Drive a server in every way."""
    url, model = sys.argv[1:]
    set_tracing_disabled(True)
    made = asyncio.run(driven(url, model))
    at_once = Runner.run_sync(with_tool(url, model, "weather"), "the weather in Kiel")
    print(json.dumps({**made, "at_once": at_once.final_output}))


if __name__ == "__main__":
    main()
