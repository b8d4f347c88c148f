"""Telling those who watch: what goes wrong with one of them is logged, and is nothing to whoever tells."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


def tell(watchers: Iterable[Callable[[T], None]], news: T) -> None:
    """Tell each of them. What is told has happened, so nothing that a watcher raises may look as if it had not."""
    for watcher in watchers:
        try:
            watcher(news)
        except Exception:
            logger.exception("a watcher failed")
