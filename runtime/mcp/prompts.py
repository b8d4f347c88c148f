"""Prompts as MCP clients list, get and complete them. No transport."""

from collections.abc import Iterable

import anyio.to_thread
import mcp.types as t

from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.mcp import resources
from tenuto.runtime.mcp.prompt_files import Prompt, PromptFiles
from tenuto.sessions.principal import Principal

MOST_COMPLETED = 100
"""Values of one completion, as the protocol has it."""
_MOST_SESSIONS = 500
"""The newest, among which ids are looked for."""


async def listed(files: PromptFiles) -> t.ListPromptsResult:
    """All of them, in one page."""
    found = await anyio.to_thread.run_sync(files.all)
    return t.ListPromptsResult(prompts=[_listed(name, prompt) for name, prompt in found.items()])


async def filled(files: PromptFiles, params: t.GetPromptRequestParams) -> t.GetPromptResult:
    """One of them with its arguments. Raises NotFound, InvalidRequest."""
    prompt = await anyio.to_thread.run_sync(files.get, params.name)
    messages = [
        t.PromptMessage(role=one.role, content=t.TextContent(type="text", text=one.text))
        for one in prompt.filled(params.arguments or {})
    ]
    return t.GetPromptResult(description=prompt.description, messages=messages)


async def completed(
    files: PromptFiles, runner: LoopPort, principal: Principal, params: t.CompleteRequestParams
) -> t.CompleteResult:
    """How an argument of a prompt, or the id in a session's URI, can go on. Raises NotFound."""
    begun, argument = params.argument.value, params.argument.name
    match params.ref:
        case t.PromptReference(name=name):
            prompt = await anyio.to_thread.run_sync(files.get, name)
            return _completion(
                begun, (value for one in prompt.arguments if one.name == argument for value in one.values)
            )
        case t.ResourceTemplateReference(uri=resources.TEMPLATE):
            found = await runner.list_sessions(principal, implicit=False, limit=_MOST_SESSIONS, after=None)
            return _completion(begun, (each.id for each in found))
        case _:
            return _completion(begun, ())


def _completion(begun: str, values: Iterable[str]) -> t.CompleteResult:
    fitting = [value for value in values if value.lower().startswith(begun.lower())]
    kept = fitting[:MOST_COMPLETED]
    return t.CompleteResult(completion=t.Completion(values=kept, total=len(fitting), has_more=len(fitting) > len(kept)))


def _listed(name: str, prompt: Prompt) -> t.Prompt:
    arguments = [
        t.PromptArgument(name=one.name, title=one.title, description=one.description, required=one.required)
        for one in prompt.arguments
    ]
    return t.Prompt(name=name, title=prompt.title, description=prompt.description, arguments=arguments)
