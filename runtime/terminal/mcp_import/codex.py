"""Entries as Codex writes them: tables of its `config.toml`. Pure."""

from collections.abc import Mapping
from typing import Any

from tenuto.runtime.terminal.mcp_import.references import Reading

_SECONDS = {"startup_timeout_sec": ("start_timeout_s", 1), "startup_timeout_ms": ("start_timeout_s", 1000)}
_RENAMED = {**_SECONDS, "tool_timeout_sec": ("timeout_s", 1)}
_HEADERS = ("http_headers", "env_http_headers", "bearer_token_env_var")
_TOOLS = ("enabled_tools", "disabled_tools")


def read(given: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """An entry of ours."""
    made: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "command" | "cwd" | "url":
                made[name] = reading.text(name, value)
            case "args":
                made[name] = reading.texts(name, value)
            case "enabled":
                made |= {"disabled": True} if value is False else {}
            case "scopes":
                made["oauth"] = {"scope": " ".join(map(str, value))} if isinstance(value, list) else value
            case _ if name in _RENAMED and isinstance(value, int | float):
                ours, divisor = _RENAMED[name]
                made[ours] = value / divisor
            case _ if name not in ("env", "env_vars", *_HEADERS, *_TOOLS):
                reading.left.append(name)
    return made | _environment(given, reading) | _headers(given, reading) | _permission(given)


def _environment(given: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    listed = given.get("env_vars")
    passed = [each.get("name") if isinstance(each, dict) else each for each in listed or () if isinstance(listed, list)]
    env: Any = {str(name): f"${{{name}}}" for name in passed}
    if "env" in given:
        fixed = reading.named_texts("env", given["env"])
        env = env | fixed if isinstance(fixed, dict) else fixed
    return {"env": env} if env else {}


def _headers(given: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    fixed = given.get("http_headers")
    headers |= reading.named_texts("http_headers", fixed) if isinstance(fixed, dict) else {}
    by_name = given.get("env_http_headers")
    headers |= {name: f"${{{variable}}}" for name, variable in by_name.items()} if isinstance(by_name, dict) else {}
    key = given.get("bearer_token_env_var")
    headers |= {"Authorization": f"Bearer ${{{key}}}"} if isinstance(key, str) else {}
    return {"headers": headers} if headers else {}


def _permission(given: Mapping[str, Any]) -> dict[str, Any]:
    """Tools that are switched off are denied; of those that are switched on, somebody is still asked."""
    on, off = (given.get(name) for name in _TOOLS)
    rules: dict[str, str] = {"*": "deny", **{str(name): "ask" for name in on}} if isinstance(on, list) else {}
    rules |= {str(name): "deny" for name in off} if isinstance(off, list) else {}
    return {"permission": rules} if rules else {}
