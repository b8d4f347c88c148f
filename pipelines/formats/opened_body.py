"""What bodies have in common whose calls something always opens."""

from collections.abc import Sequence

from tenuto.pipelines.formats.base import Schemas


class OpenedBody:
    """Text without an opener never begins such a call."""

    __slots__ = ()

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Something always opens such a call."""
        del text, schemas
        return False

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """There are none that tell a call from text."""
        del names
        return ()
