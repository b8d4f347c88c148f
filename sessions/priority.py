"""How urgent a round is."""

from enum import StrEnum


class Priority(StrEnum):
    """Whether somebody waits for what a round says."""

    INTERACTIVE = "interactive"
    BACKGROUND = "background"
    """Served with what interactive rounds leave, and with a share of its own."""
