"""A client whose connections are kept open between requests, as far as the server keeps them."""

from typing import Any

import httpx2

_BROKEN = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)


class KeepingClient(httpx2.Client):
    """For requests without a body, which can be sent again. A server may close a connection that it kept at the moment
    when it is used: that says nothing of whether it answers, so the request is sent once more, over a new one."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """As `httpx2.Client.send`."""
        over = _Over()
        request.extensions = {**request.extensions, "trace": over.told}
        try:
            return super().send(request, **options)
        except _BROKEN:
            if not over.is_kept:
                raise
        return super().send(request, **options)


class _Over:
    """Over what kind of connection a request goes; after a redirect, the request that follows."""

    def __init__(self) -> None:
        self.is_kept = True

    def told(self, event: str, _: dict[str, Any]) -> None:
        """Called by the transport, on the thread that sends."""
        name = event.partition(".")[2]
        if name == "connect_tcp.started":
            self.is_kept = False
        elif name == "receive_response_headers.complete":
            self.is_kept = True  # what follows a redirect goes over a kept one unless another is made
