"""Clients that know tasks, by plain messages over HTTP: one of the extension, one of what 2025-11-25 had before."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import httpx

from tests.e2e.server import Server
from tests.patience import HANGS_S

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
MODERN, TRIED = "2026-07-28", "2025-11-25"
ASKS: Mapping[str, Any] = {"extensions": {EXTENSION: {}}, "elicitation": {}}
"""What a client can that has tasks, and forms."""
OVER = ("completed", "failed", "cancelled")
LOOKS_S = 0.02

Json = dict[str, Any]


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(str(error))
        self.code, self.data, self.text = error["code"], error.get("data"), error["message"]


class Client:
    """Makes requests."""

    version = MODERN

    def __init__(self, server: Server, key: str | None = None) -> None:
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": self.version}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self.http = httpx.Client(base_url=server.url, timeout=HANGS_S, headers=headers)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.http.close()

    def message(self, method: str, params: Json) -> Json:
        """A request."""
        self._number += 1
        return {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}

    def ask(self, method: str, headers: Mapping[str, str] | None = None, /, **params: Any) -> Json:
        """A request's result. Raises Refused."""
        answer = self.http.post("/mcp", json=self.message(method, params), headers=headers or {})
        told = json.loads(answer.text) if answer.headers["content-type"] == "application/json" else _last(answer.text)
        if "error" in told:
            raise Refused(told["error"])
        result: Json = told["result"]
        return result

    def until(self, id: str, *statuses: str) -> Json:
        """A task once it stands so."""
        deadline = time.monotonic() + HANGS_S
        while (task := self.ask("tasks/get", taskId=id))["status"] not in statuses:
            assert time.monotonic() < deadline, task
            time.sleep(LOOKS_S)
        return task

    def over(self, id: str) -> Json:
        """A task once it is over."""
        return self.until(id, *OVER)


class Modern(Client):
    """One of the extension. `capabilities` None: it has tasks, and shows forms."""

    def __init__(self, server: Server, key: str | None = None, capabilities: Mapping[str, Any] | None = None) -> None:
        super().__init__(server, key)
        self._capabilities = ASKS if capabilities is None else capabilities

    def message(self, method: str, params: Json) -> Json:
        """Each says what the client can."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self._capabilities,
        }
        return super().message(method, {**params, "_meta": meta})

    def ask(self, method: str, headers: Mapping[str, str] | None = None, /, **params: Any) -> Json:
        """As the protocol wants it over HTTP."""
        return super().ask(method, {**self.headers(method, params), **(headers or {})}, **params)

    @staticmethod
    def headers(method: str, params: Json) -> dict[str, str]:
        """What names a request where it is routed."""
        name = params.get("name") or params.get("taskId")
        return {"mcp-method": method, **({"mcp-name": name} if isinstance(name, str) else {})}

    def chat(self, message: str, **arguments: Any) -> Json:
        """A call of chat."""
        return self.ask("tools/call", name="chat", arguments={"message": message, **arguments})

    def task(self, message: str, **arguments: Any) -> str:
        """A call that has become a task; its id."""
        made = self.chat(message, **arguments)
        assert (made["resultType"], made["status"]) == ("task", "working"), made
        id: str = made["taskId"]
        return id

    @contextmanager
    def listening(self, **wanted: Any) -> Iterator[Iterator[Json]]:
        """A stream of news; what comes on it."""
        message = self.message("subscriptions/listen", {"notifications": wanted})
        headers = {"mcp-method": "subscriptions/listen"}
        with self.http.stream("POST", "/mcp", json=message, headers=headers) as stream:
            yield (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {"))


class Tried(Client):
    """One of 2025-11-25."""

    version = TRIED

    def __init__(
        self, server: Server, key: str | None = None, capabilities: Json | None = None, version: str = TRIED
    ) -> None:
        super().__init__(server, key)
        client = {"name": "c", "version": "1"}
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
        answer = self.http.post("/mcp", json=self.message("initialize", hello))
        self.http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.http.headers["mcp-protocol-version"] = version
        self.capabilities: Json = _last(answer.text)["result"]["capabilities"]

    def task(self, message: str, **arguments: Any) -> Json:
        """A call that has become a task."""
        call = {"name": "chat", "arguments": {"message": message, **arguments}}
        made: Json = self.ask("tools/call", **call, task={"ttl": 60_000})["task"]
        return made


def _last(text: str) -> Json:
    told: Json = json.loads([line[6:] for line in text.splitlines() if line.startswith("data: {")][-1])
    return told
