"""Notifying those who watch: what goes wrong with one of them is logged, and is nothing to whoever notifies."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


def notify(watchers: Iterable[Callable[[T], None]], news: T) -> None:
    """Call each of them. What it hears of has happened, so nothing that it raises may look as if it had not."""
    for watcher in watchers:
        try:
            watcher(news)
        except Exception:
            logger.exception("a watcher failed")
