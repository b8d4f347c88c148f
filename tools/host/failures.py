"""Why a connection to an MCP server failed: the cause inside the SDK's wrappings, in words and as a kind."""

import httpx2
from mcp import MCPError

from tenuto.tools.host.http_client import refusal
from tenuto.tools.host.oauth import LoginNeeded
from tenuto.tools.host.state import Failure
from tenuto.tools.host.transport import failure_told, is_closed

_MOST_CHARACTERS = 300


class ConnectionEnded(Exception):
    """The connection has ended by itself."""


def cause(exc: BaseException) -> BaseException:
    """The innermost cause: the SDK's failures come wrapped in groups."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def reason(exc: BaseException) -> str:
    """The innermost cause in words."""
    innermost = cause(exc)
    text = str(innermost) or type(innermost).__name__
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."


def failure_of(exc: BaseException) -> Failure:
    """What kind of failure it is."""
    match cause(exc):
        case ConnectionEnded():
            return Failure.ENDED
        case LoginNeeded():
            return Failure.LOGIN_REQUIRED
        case MCPError() as error:
            return failure_told(error.error)
        case httpx2.HTTPStatusError() as error:
            return refusal(error.response.status_code)
        case httpx2.TransportError():
            return Failure.UNREACHABLE
        case TimeoutError():
            return Failure.TIMED_OUT
        case FileNotFoundError() | NotADirectoryError():
            return Failure.NO_PROGRAM
        case PermissionError():
            return Failure.NOT_EXECUTABLE
        case _:
            return Failure.OTHER


def says_closed(exc: BaseException) -> bool:
    """Whether the SDK says no more than that the connection is closed."""
    innermost = cause(exc)
    return isinstance(innermost, MCPError) and is_closed(innermost.error)
