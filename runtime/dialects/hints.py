"""What clients say of which of their conversations a request belongs to. A hint for matching: no value is an error.

Clients send one of these for different conversations, such as a chat and the request for its title. So it never names
a session of ours, which `X-Tenuto-Session` does; it tells apart sessions that are otherwise alike.
"""

import hashlib
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import to_json

HEADERS = ("x-claude-code-session-id", "x-session-id", "x-session-affinity")


def hint_of(headers: Mapping[str, str], of_body: JsonValue = None) -> str | None:
    """A name of fixed length for what is said first, in a header (lower-case names) or else in the body."""
    said = next((headers[name] for name in HEADERS if headers.get(name)), of_body)
    return hashlib.sha256(to_json(said)).hexdigest()[:32] if said else None
