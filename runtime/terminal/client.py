"""The server as a person's commands see it: plain HTTP to whoever owns the data folder, or to an address.

Synchronous on purpose: Ctrl-C then ends whatever waits, and nothing else runs in these processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import anyio
import httpx2

from tenuto.errors import InvalidRequest, ServerUnreachable, TenutoError, Unauthenticated
from tenuto.runtime.data_folder.local_server import LocalServer

CONNECT_S, ANSWER_S = 10.0, 60.0
SILENCE_S = 60.0
"""A stream sends a comment every 15 s where it has nothing to say."""
_PAGE = 100


class Refused(TenutoError):
    """The server answered with an error. `kind` is its code, `data` what stands beside the message."""

    code = "refused"

    def __init__(self, message: str, status: int, kind: str, data: dict[str, Any]) -> None:
        super().__init__(message)
        self.status, self.kind, self._data = status, kind, data


class Remote:
    """A client of one server. A `local_server` is looked up before every request: it may be a new process.

    Raises, in every method: `Refused` where the server says no, `ServerUnreachable` where it cannot be reached.
    """

    def __init__(self, local_server: LocalServer | None, url: str | None = None, api_key: str | None = None) -> None:
        self._local_server, self._url, self._key = local_server, url, api_key
        self._http = httpx2.Client(timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S))

    @property
    def is_local(self) -> bool:
        """Whether it speaks to the server of a data folder on this machine, as its user."""
        return self._local_server is not None and self._url is None

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    @property
    def url(self) -> str:
        """Where the server is; one is started where none lives."""
        return self._target()[0]

    def key(self) -> str | None:
        """The key that its requests need; None where the server takes them without one."""
        url, headers = self._target()
        try:
            response = self._http.get(f"{url}/v1/models")
        except httpx2.HTTPError as exc:
            raise _unreachable(url, exc) from exc
        return headers["Authorization"].partition(" ")[2] if response.status_code == 401 and headers else None

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """GET."""
        return self._ask("GET", path, params=query)

    def post(self, path: str, body: Any = None, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """POST."""
        return self._ask("POST", path, json=body, timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S))

    def put(self, path: str, body: Any) -> dict[str, Any]:
        """PUT."""
        return self._ask("PUT", path, json=body)

    def delete(self, path: str) -> dict[str, Any]:
        """DELETE."""
        return self._ask("DELETE", path)

    def sessions(self, *, implicit: bool = False) -> Iterator[dict[str, Any]]:
        """All sessions of the caller, those last used first."""
        return self.listed("/v1/sessions", implicit=int(implicit))

    def listed(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """All entries of a list that is told by pages."""
        query["limit"] = _PAGE
        while True:
            page = self.get(path, **query)
            yield from page["data"]
            if not page["has_more"]:
                return
            query["after"] = page["last_id"]

    def model(self, wanted: str | None) -> str:
        """The id of the model that a person means, by its id or as `--model` names it.

        Raises:
            InvalidRequest: the server has no such model.
        """
        if wanted is None or wanted == "default":
            return "default"
        from tenuto.pipelines.finding import model_id

        known = [model["id"] for model in self.get("/v1/models")["data"]]
        found = next((name for name in (wanted, model_id(wanted)) if name in known), None)
        if found is None:
            raise InvalidRequest(
                f"the server at {self.url} has no model {wanted!r}, only {', '.join(known)};"
                " name one of these, or stop that server and start it with this model"
            )
        return found

    @contextmanager
    def stream(self, method: str, path: str, body: Any = None, **query: Any) -> Iterator[httpx2.Response]:
        """A response that is read while it comes; leaving the block hangs up."""
        url, headers = self._target()
        timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S, read=SILENCE_S)
        headers |= {"X-Tenuto-Events": "1"}
        try:
            with self._http.stream(
                method, url + path, headers=headers, json=body, params=query, timeout=timeout
            ) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _refusal(response)
                yield response
        except httpx2.HTTPError as exc:
            raise _unreachable(url, exc) from exc

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        url, headers = self._target()
        try:
            response = self._http.request(method, url + path, headers=headers, **options)
        except httpx2.HTTPError as exc:
            raise _unreachable(url, exc) from exc
        if response.status_code >= 400:
            raise _refusal(response)
        answer: dict[str, Any] = response.json()
        return answer

    def _target(self) -> tuple[str, dict[str, str]]:
        if self._url is not None:
            return self._url.rstrip("/"), {"Authorization": f"Bearer {self._key}"} if self._key else {}
        assert self._local_server is not None
        owner = anyio.run(self._local_server.owner)
        return str(owner.url), {"Authorization": f"Bearer {owner.secret}"}


def session_path(session_id: str) -> str:
    """Where a session is."""
    return f"/v1/sessions/{quote(session_id, safe='')}"


def is_missing(exc: TenutoError) -> bool:
    """Whether the server knows no such thing."""
    return isinstance(exc, Refused) and exc.status == 404


def _refusal(response: httpx2.Response) -> TenutoError:
    try:
        error = response.json()["error"]
        message, kind = str(error["message"]), str(error.get("code"))
    except (ValueError, KeyError, TypeError):
        text = response.text.strip()[:200]
        return Refused(f"it answered {response.status_code}: {text or 'nothing'}", response.status_code, "", {})
    if response.status_code == 401:
        return Unauthenticated(f"{message}; give the server's key with --api-key")
    return Refused(message, response.status_code, kind, error)


def _unreachable(url: str, exc: Exception) -> ServerUnreachable:
    return ServerUnreachable(f"the server at {url} cannot be reached ({str(exc) or type(exc).__name__})")
