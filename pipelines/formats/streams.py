"""Text while it streams: without white space at its ends, and without what may be about to become a marker."""

LONGEST_HEAD = 512
"""Characters in which a call's name, or an argument's, has to be over: more are none. Each piece is looked at anew."""


class Written:
    """Text that comes in pieces, put together when it is asked for."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        """Go on by a piece."""
        self._pieces.append(text)

    def take(self) -> str:
        """All of it, and begin anew."""
        text, self._pieces = str(self), []
        return text

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class TrimmedText:
    """Passes text on as it comes, holding white space back until it is known that more text follows."""

    def __init__(self, *, keep_start: bool) -> None:
        self._keep_start = keep_start
        self._held = Written()
        self._begun = False

    def push(self, text: str) -> str:
        """The text that may be shown now."""
        said = text.rstrip()
        shown = self._held.take() + said if said else ""
        self._held.add(text[len(said) :])
        if shown and not self._begun and not self._keep_start:
            shown = shown.lstrip()
        self._begun = self._begun or bool(shown)
        return shown

    def drop(self) -> None:
        """Forget the white space that is held back: no text follows it."""
        self._held.take()

    def skip_start(self) -> None:
        """Where no text was shown so far, leave out the white space before the first."""
        if not self._begun:
            self.drop()
            self._keep_start = False


def held_back(text: str, marker: str) -> int:
    """How many characters at the end of a text may be the beginning of the marker."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
