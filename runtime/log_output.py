"""Where the log goes, and how much of it: to stderr, in one form for every process of a server."""

import logging
import sys


def to_stderr(level: str) -> None:
    """Our own log at the level asked for; what libraries say only where it matters, or at debug."""
    logging.basicConfig(
        level=logging.DEBUG if level == "debug" else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("tenuto").setLevel(level.upper())
    for name in ("httpx2", "httpcore2", "mcp.client"):  # they tell whole URLs, which may hold keys
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.captureWarnings(True)
