"""Leads Schemathesis to what there is: ids that exist and models that are served, so that requests get past the door.

Half of them stay as they were generated. Named by SCHEMATHESIS_HOOKS.
"""

from typing import Any
from urllib.parse import quote

import schemathesis

SESSIONS = ("one", "two", "three")
SAID = ("tool", "weather", "hello")


def _even(value: Any) -> bool:
    return len(repr(value)) % 2 == 0


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """A session's or a model's id that is there."""
    if not isinstance(path_parameters, dict) or "id" not in path_parameters or not _even(path_parameters["id"]):
        return path_parameters
    chosen = SESSIONS[len(repr(path_parameters["id"])) // 2 % len(SESSIONS)]
    return {**path_parameters, "id": quote("model" if "models" in context.operation.path else chosen)}


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """A model that is served, a session that may be there, and words that the script knows."""
    if not isinstance(body, dict) or not _even(body):
        return body
    led = {**body, "model": "default"} if "model" in body or "prompt" in body else dict(body)
    if isinstance(led.get("session_id"), str):
        led["session_id"] = SESSIONS[len(repr(body)) // 2 % len(SESSIONS)]
    messages = led.get("messages")
    if isinstance(messages, list) and messages:
        said = SAID[len(repr(body)) // 2 % len(SAID)]
        led["messages"] = [{"role": "user", "content": said}, *(messages if len(messages) > 2 else [])]
    if isinstance(led.get("input"), list):
        led["input"] = [{"role": "user", "content": SAID[len(repr(body)) // 2 % len(SAID)]}, *led["input"]]
    if isinstance(led.get("tokens"), list):
        led["tokens"] = [token % 256 for token in led["tokens"] if isinstance(token, int)]
    return led
