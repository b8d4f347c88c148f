"""How many values a JSON text may have: told before it is read, as reading costs many times its bytes."""

MOST_VALUES = 100_000
"""Far more than agents send: these have some thousand messages, and a hundred tools."""
MOST_PROMPT_VALUES = 250_000
"""Where a prompt may be told in tokens, each of which is one."""
_PIECE_BYTES = 1 << 16


def has_at_most(body: bytes, values: int) -> bool:
    """Whether JSON text has no more values than that, as far as it can be told before it is read: some of these count
    twice. What holds the interpreter's lock at a time takes some milliseconds, even of the largest body."""
    if _separators(body) < values:
        return True
    text = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * values:
        return False
    found, in_string = 0, False
    for start in range(0, len(text), _PIECE_BYTES):
        parts = text[start : start + _PIECE_BYTES].split(b'"')
        found += _separators(b"".join(parts[in_string::2]))
        if found >= values:
            return False
        in_string ^= len(parts) % 2 == 0
    return True


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
