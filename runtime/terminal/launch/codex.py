"""Codex: a provider of its own, by `-c` options. It speaks /v1/responses."""

import json

from tenuto.runtime.terminal.launch.agent import KEY, Agent, Installed, Setup, Target


def _provider(target: Target) -> str:
    key = f', env_key = "{KEY}"' if target.key else ""
    return f'{{ name = "Tenuto", base_url = {_toml(target.url + "/v1")}, wire_api = "responses"{key} }}'


def _settings(target: Target) -> dict[str, str]:
    """Each setting and its value in TOML."""
    settings = {
        "model": _toml(target.model),
        "model_provider": '"tenuto"',
        "model_providers.tenuto": _provider(target),
        "model_context_window": str(target.context),
        "model_auto_compact_token_limit": str(target.context - target.output),
    }
    if target.mcp:
        key = f', bearer_token_env_var = "{KEY}"' if target.key else ""
        settings["mcp_servers.tenuto"] = f"{{ url = {_toml(target.url + '/mcp')}{key} }}"
    return settings


def _setup(target: Target) -> Setup:
    options = (word for name, value in _settings(target).items() for word in ("-c", f"{name}={value}"))
    return Setup({KEY: target.key} if target.key else {}, tuple(options))


def _installed(target: Target) -> Installed:
    text = "".join(f"{name} = {value}\n" for name, value in _settings(target).items())
    return Installed(".codex/tenuto.config.toml", "codex --profile tenuto", text=text)


def _toml(text: str) -> str:
    return json.dumps(text)  # a JSON string of printable characters is one of TOML


CODEX = Agent("codex", "Codex", "codex", "@openai/codex", 10_000, _setup, _installed)
