"""qwen-code: by its environment, and what it takes from settings alone. It speaks /v1/chat/completions."""

import json
from typing import Any

from tenuto.runtime.terminal.launch.agent import Agent, Installed, Setup, Target


def _environment(target: Target) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": f"{target.url}/v1",
        "OPENAI_API_KEY": target.key_or_any,
        "OPENAI_MODEL": target.model,
        "QWEN_CODE_MAX_OUTPUT_TOKENS": str(target.output),
    }


def _settings(target: Target) -> dict[str, Any]:
    made: dict[str, Any] = {
        "model": {"generationConfig": {"contextWindowSize": target.context}},
        "security": {"auth": {"selectedType": "openai"}},
    }
    if target.mcp:
        made["mcpServers"] = {"tenuto": {"httpUrl": f"{target.url}/mcp", "headers": target.bearer}}
    return made


def _setup(target: Target) -> Setup:
    return Setup(
        _environment(target),
        ("--auth-type", "openai"),
        settings=json.dumps(_settings(target)),
        settings_variable="QWEN_CODE_SYSTEM_DEFAULTS_PATH",
    )


def _installed(target: Target) -> Installed:
    return Installed(".qwen/settings.json", "qwen", merged={**_settings(target), "env": _environment(target)})


QWEN = Agent("qwen", "qwen-code", "qwen", "@qwen-code/qwen-code", 20_000, _setup, _installed)
