"""One authorization server: where its keys are, and the keys, fetched seldom, whatever tokens come.

Nobody's token makes this server ask more often than every `again_s`. Whoever has a token of a known key never waits
for the issuer; with others, few wait, and not for long.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup

from tenuto.access_errors import IssuerUnavailable
from tenuto.runtime.addresses import is_loopback
from tenuto.runtime.oauth.fetching import FetchFailed, fetch_json
from tenuto.runtime.oauth.key_set import KeySet, PublicKey
from tenuto.tools.egress import Egress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Times:
    """`fresh_s`: keys are used so long before they are fetched anew. `usable_s`: and so long where that fails.
    `again_s`: between the beginnings of two fetches. `wait_s`: for a key that is not there yet."""

    fresh_s: float = 600.0
    usable_s: float = 3600.0
    again_s: float = 10.0
    wait_s: float = 5.0
    fetch_s: float = 10.0
    most_waiting: int = 64


class Issuer:
    """Event-loop thread only. `tasks` hold its fetches: a client that leaves ends none."""

    def __init__(self, url: str, tasks: TaskGroup, times: Times, clock: Callable[[], float]) -> None:
        self.url = url
        self._tasks, self._times, self._clock = tasks, times, clock
        self._keys = KeySet({})
        self._fetched = float("-inf")
        self._begun = float("-inf")
        self._fetching: anyio.Event | None = None
        self._waiting = 0
        self._problem = ""

    async def keys(self, id: str | None, algorithm: str) -> list[PublicKey]:
        """The keys with which such a token may be signed; none where the issuer has no such key.

        Raises:
            IssuerUnavailable: its keys cannot be had now.
        """
        found = self._known(id, algorithm)
        if not found or self._age > self._times.fresh_s:
            self.refresh()
        if not found and self._fetching is not None:
            await self._wait(self._fetching)
            found = self._known(id, algorithm)
        if not found and self._age > self._times.usable_s:
            raise IssuerUnavailable(
                f"the keys of {self.url} cannot be had now: {self._problem or 'it does not answer'}"
            )
        return found

    def refresh(self) -> None:
        """Have the keys fetched, unless that was begun a moment ago."""
        if self._fetching is None and self._clock() - self._begun >= self._times.again_s:
            self._begun, self._fetching = self._clock(), anyio.Event()
            self._tasks.start_soon(self._fetch, self._fetching)

    @property
    def _age(self) -> float:
        return self._clock() - self._fetched

    def _known(self, id: str | None, algorithm: str) -> list[PublicKey]:
        return self._keys.suiting(id, algorithm) if self._age <= self._times.usable_s else []

    async def _wait(self, fetching: anyio.Event) -> None:
        if self._waiting >= self._times.most_waiting:
            raise IssuerUnavailable(f"too many requests wait for the keys of {self.url}")
        self._waiting += 1
        try:
            with anyio.move_on_after(self._times.wait_s):
                await fetching.wait()
        finally:
            self._waiting -= 1

    async def _fetch(self, done: anyio.Event) -> None:
        try:
            with anyio.fail_after(self._times.fetch_s):
                keys = await anyio.to_thread.run_sync(KeySet, await self._document())
            if not len(keys):
                raise FetchFailed("it has no key that could sign tokens")
            self._keys, self._fetched, self._problem = keys, self._clock(), ""
        except (FetchFailed, TimeoutError) as exc:
            problem = str(exc) or f"it did not answer within {self._times.fetch_s:g} s"
            level = logging.DEBUG if problem == self._problem else logging.WARNING
            logger.log(level, "the keys of the issuer %s cannot be fetched: %s", self.url, problem)
            self._problem = problem
        finally:
            self._fetching = None
            done.set()

    async def _document(self) -> dict[str, Any]:
        """Its keys, from where it says that they are."""
        uri = (await self._metadata()).get("jwks_uri")
        if not isinstance(uri, str):
            raise FetchFailed("its metadata has no jwks_uri")
        return await fetch_json(uri, self._egress(uri))

    async def _metadata(self) -> dict[str, Any]:
        """Of the places where it may stand, the first that has any (RFC 8414, section 3)."""
        problem = FetchFailed("it has no metadata")
        for place in metadata_urls(self.url):
            try:
                metadata = await fetch_json(place, Egress.ALL)
            except FetchFailed as exc:
                problem = exc
                continue
            if metadata.get("issuer") != self.url:
                raise FetchFailed("its metadata is that of another issuer")
            return metadata
        raise problem

    def _egress(self, uri: str) -> Egress:
        """The issuer may be anywhere, as it was configured. Where it leads us is its own server, or a public one."""
        try:
            here, there = httpx2.URL(self.url), httpx2.URL(uri)
        except httpx2.InvalidURL as exc:
            raise FetchFailed("its jwks_uri is no URL") from exc
        if is_loopback(here.host) and is_loopback(there.host):
            return Egress.ALL
        if there.scheme != "https":
            raise FetchFailed("its jwks_uri is not one of https")
        return Egress.ALL if (here.host, here.port) == (there.host, there.port) else Egress.PUBLIC


def metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of an issuer may be: as OAuth has it, and as OpenID Connect has it."""
    url = urlsplit(issuer)
    origin, path = f"{url.scheme}://{url.netloc}", url.path.rstrip("/")
    inserted = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return list(dict.fromkeys([*inserted, f"{origin}{path}/.well-known/openid-configuration"]))
