"""Recorded requests and their answers, whole: read, played against a server, and recorded anew.

`python -m tests.dialects.wire_pairs` records all of them again; what has changed is then for the eyes in `git diff`.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.dialects.conftest import served
from tests.e2e.server import Server

PAIRS = sorted((Path(__file__).parent / "wire").glob("*.json"))

_IDS = re.compile(
    r"\b(run|session|conv|call|cmpl|chatcmpl|resp|msg|req|rs|fc|ctc|mcp|mcpl|mcpr|appr)([-_])[0-9a-f]{24,}\b"
)
_MEASURED = {
    "waited_s",
    "first_token_s",
    "total_s",
    "expires_at",
    "created",
    "created_at",
    "completed_at",
    "sequence_number",
    "total_duration",
    "load_duration",
    "prompt_eval_duration",
    "eval_duration",
}
_TIMES = {"created_at", "modified_at"}  # where they are text
# How much of a prompt has a cache depends on what the server was asked before.
_CACHED = {
    *("cached_tokens", "computed_tokens", "new_tokens", "residency"),
    *("input_tokens", "cache_read_input_tokens"),
}


def served_apart(folder: Path) -> Server:
    """A server, not started, at which every pair is another principal's.

    Which session a request goes on with, and why its prompt has no cache, depend on what its principal asked before.
    """
    keys = (f'[[keys]]\nkey = "{path.stem}"\nperson = true\nadmin = true\n' for path in PAIRS)
    (folder / "tenuto.toml").write_text("".join(keys))
    return served(folder)


def play(http: httpx.Client, path: Path) -> dict[str, Any]:
    """What a server that is `served_apart` says to a pair's request, in the form in which it is recorded."""
    pair = json.loads(path.read_text())
    response = http.post(pair["path"], json=pair["request"], headers={"Authorization": f"Bearer {path.stem}"})
    played = {"path": pair["path"], "request": pair["request"], "status": response.status_code}
    if response.headers["content-type"].startswith("text/event-stream"):
        return played | {"stream": _joined([_same(event) for event in _events(response.text)])}
    if response.headers["content-type"] == "application/x-ndjson":
        return played | {"stream": _with_joined_lines([_same(json.loads(line)) for line in response.text.splitlines()])}
    return played | {"response": _same(response.json())}


def _events(text: str) -> list[Any]:
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    lines = [next(line for line in block.split("\n") if line.startswith("data: ")) for block in blocks]
    data = [line.removeprefix("data: ") for line in lines]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def _same(value: Any, key: str = "") -> Any:
    """The value with what differs from one time to the next replaced."""
    if isinstance(value, dict):
        # What is only counted is the same each time.
        return value if set(value) == {"input_tokens"} else {name: _same(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_same(inner, key) for inner in value]
    if key in _TIMES and isinstance(value, str):
        return "2000-01-01T00:00:00Z"
    if key in _MEASURED | _CACHED and value is not None:
        return key.upper()
    return _IDS.sub(r"\1\2ID", value) if isinstance(value, str) else value


def _joined(events: list[Any]) -> list[Any]:
    """Pieces of one text may come one by one or together, and those of several choices in any order."""
    choices = {event["choices"][0]["index"] for event in events if _is_choice(event)}
    joined: list[Any] = []
    events = _with_joined_deltas(events)
    for index in sorted(choices):
        begin = len(joined)
        for event in (event for event in events if _is_choice(event) and event["choices"][0]["index"] == index):
            if len(joined) == begin or not _join(joined[-1]["choices"][0], event["choices"][0]):
                joined.append(event)
    for event in (event for event in events if not _is_choice(event)):
        if not (joined and _is_delta(event) and _is_delta(joined[-1]) and _join_delta(joined[-1], event)):
            joined.append(event)
    return joined


def _is_delta(event: Any) -> bool:
    return isinstance(event, dict) and event.get("type") == "content_block_delta"


def _join_delta(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """The same for a message: add a piece of a block to the piece before it."""
    one, other = before["delta"], after["delta"]
    if (before["index"], one["type"]) != (after["index"], other["type"]):
        return False
    (name,) = set(one) - {"type"}
    one[name] += other[name]
    return True


def _with_joined_lines(lines: list[Any]) -> list[Any]:
    """The lines of an answer, with all pieces of a text as one."""
    joined: list[Any] = []
    for line in lines:
        said, before = (one.get("message", one) for one in (line, joined[-1] if joined else {}))
        kind = next((kind for kind in ("thinking", "content", "response") if said.get(kind)), None)
        if kind is None or not before.get(kind):
            joined.append(line)
            continue
        before[kind] += said[kind]
        joined[-1].get("logprobs", []).extend(line.get("logprobs", []))
    return joined


def _with_joined_deltas(events: list[Any]) -> list[Any]:
    """The events of a response's stream, with all pieces of a text as one."""
    joined: list[Any] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(last, dict) and "item_id" in event and "delta" in event and _piece_of(last) == _piece_of(event):
            last["delta"] += event["delta"]
            last.get("logprobs", []).extend(event.get("logprobs", []))
        else:
            joined.append(event)
    return joined


def _piece_of(event: dict[str, Any]) -> tuple[str | None, str | None]:
    return event.get("type"), event.get("item_id")


def _is_choice(event: Any) -> bool:
    return isinstance(event, dict) and bool(event.get("choices"))


def _join(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Add a piece of text to the piece before it; False where they are not two pieces of one text."""
    one, other = before.get("delta", before), after.get("delta", after)
    kinds = [name for name in ("content", "reasoning_content", "text") if one.get(name) and other.get(name)]
    if len(kinds) != 1 or after["finish_reason"] is not None:
        return False
    one[kinds[0]] += other[kinds[0]]
    if before["logprobs"] is not None:
        for name, values in before["logprobs"].items():
            if isinstance(values, list):
                values.extend(after["logprobs"][name])
    return True


def _record() -> None:
    with tempfile.TemporaryDirectory() as name:
        server = served_apart(Path(name)).start()
        try:
            with server.client() as http:
                for path in PAIRS:
                    played = play(http, path)
                    path.write_text(json.dumps(played, indent=1, ensure_ascii=False) + "\n")
        finally:
            server.close()


if __name__ == "__main__":
    _record()
