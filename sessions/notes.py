"""Notes of a session, or of a principal outside of sessions: a few texts by key, so many and so large. Pure."""

from collections.abc import Mapping

MOST_NOTES = 200
MOST_KEY_CHARACTERS = 100
MOST_TEXT_CHARACTERS = 20_000
MOST_BYTES = 1 << 20
"""Of all keys and texts together."""


class NotesFull(Exception):
    """There is no room for a note; the text says so in words for whoever wants to write it."""


def fault(key: str, text: str) -> str | None:
    """In words, why a text cannot be a note under a key, whatever notes there are; None where it can."""
    if not key or key != key.strip() or "\n" in key or len(key) > MOST_KEY_CHARACTERS:
        return f"a note's key is one line of 1 to {MOST_KEY_CHARACTERS} characters"
    if len(text) > MOST_TEXT_CHARACTERS:
        return f"the text has {len(text)} characters; a note takes {MOST_TEXT_CHARACTERS}"
    return None


def expect_room(notes: Mapping[str, str], key: str, text: str) -> None:
    """Raise NotesFull where a text cannot stand under a key beside the notes that there are."""
    if key not in notes and len(notes) >= MOST_NOTES:
        raise NotesFull(f"there are {MOST_NOTES} notes already; put a new text under one of their keys")
    before = nbytes(notes)
    after = nbytes({**notes, key: text})
    if after > MOST_BYTES and after > before:  # what has more already may still be shortened
        raise NotesFull(f"all notes together would have more than {MOST_BYTES} bytes; make this one or another shorter")


def nbytes(notes: Mapping[str, str]) -> int:
    """How many bytes the notes have, keys included, as UTF-8."""
    return sum(len(key.encode()) + len(text.encode()) for key, text in notes.items())
