"""What goes wrong outside a call of a tool, as the protocol's errors; and text that JSON cannot hold. No transport."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mcp.types as t
from mcp.shared.exceptions import MCPError

from tenuto.errors import InvalidRequest, NotFound, TenutoError

logger = logging.getLogger(__name__)


@contextmanager
def as_protocol_errors(method: str) -> Iterator[None]:
    """What is no call of a tool has no result to tell a failure in. Nobody is told the text of a bug."""
    try:
        yield
    except MCPError:
        raise
    except (InvalidRequest, NotFound) as exc:
        raise MCPError(code=t.INVALID_PARAMS, message=f"{exc.code}: {exc}") from exc
    except TenutoError as exc:
        raise MCPError(code=t.INTERNAL_ERROR, message=f"{exc.code}: {exc}") from exc
    except Exception as exc:
        logger.exception("%s over MCP failed", method)
        raise MCPError(code=t.INTERNAL_ERROR, message="internal: the server's log has the details") from exc


def expect_json(what: str, value: Any) -> None:
    """Raise InvalidRequest for what Python's reader lets pass though JSON has no such values: they cannot be kept."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as exc:
        half = f"U+{ord(exc.object[exc.start]):04X}"
        raise InvalidRequest(f"{what} must be valid Unicode: there is a lone surrogate, {half}") from None
    except ValueError:
        raise InvalidRequest(f"{what} must be valid JSON: NaN and infinities are not allowed") from None
