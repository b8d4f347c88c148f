"""The tools that the runtime brings along: no network, no files, nothing that could harm."""

from tenuto.tools.builtin.calculator import Calculator
from tenuto.tools.builtin.clock import Clock
from tenuto.tools.builtin.notes import Notes, NotesKeeper

__all__ = ["Calculator", "Clock", "Notes", "NotesKeeper"]
