"""Prompts of files as MCP clients list and get them. No transport."""

import anyio.to_thread
import mcp.types as t

from tenuto.runtime.mcp.icons import icon
from tenuto.runtime.mcp.prompt_files import Prompt, PromptFiles


async def listed(files: PromptFiles) -> list[t.Prompt]:
    """All of them."""
    found = await anyio.to_thread.run_sync(files.all)
    return [_listed(name, prompt) for name, prompt in found.items()]


async def names(files: PromptFiles) -> list[str]:
    """Their names."""
    return [*await anyio.to_thread.run_sync(files.all)]


async def filled(files: PromptFiles, params: t.GetPromptRequestParams) -> t.GetPromptResult:
    """One of them with its arguments. Raises NotFound, InvalidRequest."""
    prompt = await anyio.to_thread.run_sync(files.get, params.name)
    messages = [
        t.PromptMessage(role=one.role, content=t.TextContent(type="text", text=one.text))
        for one in prompt.filled(params.arguments or {})
    ]
    return t.GetPromptResult(description=prompt.description, messages=messages)


def _listed(name: str, prompt: Prompt) -> t.Prompt:
    arguments = [
        t.PromptArgument(name=one.name, title=one.title, description=one.description, required=one.required)
        for one in prompt.arguments
    ]
    return t.Prompt(
        name=name,
        title=prompt.title,
        description=prompt.description,
        arguments=arguments,
        icons=[icon("prompt")],
    )
