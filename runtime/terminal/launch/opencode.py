"""opencode: a provider of its own, as configuration in its environment. It speaks /v1/chat/completions."""

import json
from typing import Any

from tenuto.runtime.terminal.launch.agent import Agent, Installed, Setup, Target


def _configuration(target: Target) -> dict[str, Any]:
    limits = {"context": target.context, "output": target.output}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Tenuto",
        "options": {"baseURL": f"{target.url}/v1", "apiKey": target.key_or_any},
        "models": {target.model: {"name": target.model, "limit": limits}},
    }
    named = f"tenuto/{target.model}"
    made: dict[str, Any] = {"provider": {"tenuto": provider}, "model": named, "small_model": named}
    if target.mcp:
        made["mcp"] = {"tenuto": {"type": "remote", "url": f"{target.url}/mcp", "headers": target.bearer}}
    return made


def _setup(target: Target) -> Setup:
    return Setup({"OPENCODE_CONFIG_CONTENT": json.dumps(_configuration(target))})


def _installed(target: Target) -> Installed:
    return Installed(".config/opencode/opencode.json", "opencode", merged=_configuration(target))


OPENCODE = Agent("opencode", "opencode", "opencode", "opencode-ai", 8_000, _setup, _installed)
