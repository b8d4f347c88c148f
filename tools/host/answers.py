"""Requests to a server that are no calls of tools: bounded, with what goes wrong in words without secrets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
from mcp import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError

from tenuto.errors import InvalidRequest, NotFound, ToolFailed

MOST_URI_CHARACTERS = 4096
_LEGACY_NOT_FOUND = -32002


@contextmanager
def answering(
    name: str, timeout_s: float, hidden: Callable[[str], str], missing: NotFound | None = None
) -> Iterator[None]:
    """Ask the server `name` something in the block. `missing` is raised where it does not know what it is asked for.

    Raises:
        ToolFailed: it did not answer in time, or what it answers is a failure or cannot be read.
        NotFound, InvalidRequest: it refuses what it was given.
    """
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as exc:
        raise ToolFailed(f"{name} did not answer within {timeout_s:g} s", may_have_run=True) from exc
    except MCPError as exc:
        told = hidden(exc.error.message)[:300]
        if exc.error.code in (INVALID_PARAMS, _LEGACY_NOT_FOUND):
            raise (missing or InvalidRequest(f"{name}: {told}")) from exc
        raise ToolFailed(f"{name}: {told}", may_have_run=True) from exc
    except (RuntimeError, ValidationError, anyio.ClosedResourceError, anyio.BrokenResourceError) as exc:
        raise ToolFailed(f"the answer of {name} cannot be read", may_have_run=True) from exc
