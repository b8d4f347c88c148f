"""What parsers of turns have in common: tokens as text and markers, and text without white space at its ends."""

from collections.abc import Iterable

from tenuto.pipelines.content import StreamDecoder
from tenuto.pipelines.formats.base import Marker
from tenuto.pipelines.vocabulary import Vocabulary


class MarkedTokens:
    """Sampled tokens as text and those markers that are tokens of their own. Other reserved tokens give nothing."""

    def __init__(self, vocabulary: Vocabulary, markers: Iterable[Marker]) -> None:
        self._decoder = StreamDecoder(vocabulary)
        self._markers = {marker.id: marker for marker in markers if marker.id is not None}

    def push(self, token: int) -> list[str | Marker]:
        """What has become whole with this token."""
        marker = self._markers.get(token)
        if marker is not None:
            return [*self.flush(), marker]
        text = self._decoder.push(token)
        return [text] if text else []

    def flush(self) -> list[str | Marker]:
        """What is left of a character that was cut."""
        text = self._decoder.flush()
        return [text] if text else []


class TrimmedText:
    """Passes text on as it comes, holding white space back until it is known that more text follows."""

    def __init__(self, *, keep_start: bool) -> None:
        self._keep_start = keep_start
        self._held = ""
        self._begun = False

    def push(self, text: str) -> str:
        """The text that may be shown now."""
        text = self._held + text
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if not shown or self._begun or self._keep_start:
            self._begun = self._begun or bool(shown)
            return shown
        self._begun = True
        return shown.lstrip()

    def drop(self) -> None:
        """Forget the white space that is held back: no text follows it."""
        self._held = ""

    def skip_start(self) -> None:
        """Where no text was shown so far, leave out the white space before the first."""
        if not self._begun:
            self._held, self._keep_start = "", False


def held_back(text: str, marker: str) -> int:
    """How many characters at the end of a text may be the beginning of the marker."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
