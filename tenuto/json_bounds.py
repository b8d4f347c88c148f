"""How many values a JSON text may have: told before it is read, as reading costs many times its bytes."""

MOST_VALUES = 250_000
"""Far more than agents send: these have some thousand messages, and a hundred tools."""


def has_at_most(body: bytes, values: int) -> bool:
    """Whether JSON text has no more values than that, as far as it can be told before it is read: some of these count
    twice. Each look at it is one of C code, so that the largest body takes a few tens of milliseconds."""
    if _separators(body) < values:
        return True
    text = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * values:
        return False
    return _separators(b"".join(text.split(b'"')[::2])) < values


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
