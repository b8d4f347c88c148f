"""The way to a server that a request brings: to an address that was checked, and with bounds on what comes back.

A name is resolved for each request, and the request goes to the address that was looked at: what the name means a
moment later has no say. No proxy of the environment is used; it would resolve the name by itself.
"""

import ipaddress
import socket
from collections.abc import AsyncIterator

import anyio
import httpx2

from tenuto.tools.egress import Egress, problem_of_addresses, problem_of_port
from tenuto.tools.host.event_stream import is_event_stream
from tenuto.tools.host.transport import MAX_MESSAGE_BYTES

MOST_STREAM_BYTES = 8 * MAX_MESSAGE_BYTES
"""Of all events of one stream."""
_RESOLVE_S = 10.0
_MOST_ADDRESSES = 4
"""Of one host that are tried."""
_CONNECTIONS = httpx2.Limits(max_connections=32, max_keepalive_connections=4)
_PORTS = {"http": 80, "https": 443}


class PinnedTransport(httpx2.AsyncHTTPTransport):
    """For one host: connections are told apart by address alone, and one that was proved to be a host is no other."""

    def __init__(self, egress: Egress) -> None:
        super().__init__(limits=_CONNECTIONS)
        self._egress = egress
        self._host: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it to an address of its host. Raises httpx2.ConnectError where none of them may be called."""
        host = request.url.raw_host.decode("ascii")
        if self._host not in (None, host):
            raise httpx2.ConnectError("this way leads to one host alone")
        self._host = host
        addresses = await self._allowed(request, host)
        # Who answers must prove to be the host, not the address.
        extensions = {**request.extensions, "sni_hostname": host}
        failure: httpx2.TransportError = httpx2.ConnectError("its name has no address")
        for address in addresses[:_MOST_ADDRESSES]:
            url = request.url.copy_with(host=address)
            pinned = httpx2.Request(
                request.method, url, headers=request.headers, stream=request.stream, extensions=extensions
            )
            try:
                return await _bounded(await super().handle_async_request(pinned))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
                failure = exc
        raise failure

    async def _allowed(self, request: httpx2.Request, host: str) -> list[str]:
        port = request.url.port or _PORTS[request.url.scheme]
        addresses = await addresses_of(host, port)
        problem = problem_of_port(self._egress, port) or problem_of_addresses(self._egress, addresses)
        if problem is not None:
            raise httpx2.ConnectError(problem)
        return addresses


async def addresses_of(host: str, port: int) -> list[str]:
    """All addresses of a host. Raises httpx2.ConnectError."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        with anyio.fail_after(_RESOLVE_S):
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as exc:
        raise httpx2.ConnectTimeout("its name could not be resolved in time") from exc
    except (OSError, UnicodeError) as exc:
        raise httpx2.ConnectError("its name cannot be resolved") from exc
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _bounded(response: httpx2.Response) -> httpx2.Response:
    """The response with an end to what it may hold. Nobody reads what stands with a redirect."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":  # nobody knows how much it is when it is unpacked
        await response.aclose()
        raise httpx2.RemoteProtocolError("the server has compressed its answer, which it was asked not to do")
    most = MOST_STREAM_BYTES if is_event_stream(response) else MAX_MESSAGE_BYTES
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream, 0 if response.is_redirect else most, is_cut=response.is_redirect)
    return response


class _Bounded(httpx2.AsyncByteStream):
    """So many bytes of a stream; then it ends, or breaks."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int, *, is_cut: bool) -> None:
        self._stream, self._most, self._is_cut = stream, most, is_cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._is_cut:
            return
        left = self._most
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.ReadError(f"it sends more than {self._most} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
