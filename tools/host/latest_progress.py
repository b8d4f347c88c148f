"""A call's progress on its way to whoever waits for the call. Event-loop thread only."""

from collections.abc import Callable

from tenuto.tools.spec import Progress


class LatestProgress:
    """Passes on the progress of one call, one report at a time. What has come meanwhile is left out but for the last.

    The SDK takes each report in a task of its own: with a client that does not read they would pile up without bound.
    """

    def __init__(self, told: Progress, hidden: Callable[[str], str]) -> None:
        self._told, self._hidden = told, hidden
        self._latest: tuple[float, float | None, str | None] | None = None
        self._is_telling = False

    async def tell(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass a report on, or leave that to the one that is on its way."""
        self._latest = (progress, total, message)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._latest is not None:
                (progress, total, message), self._latest = self._latest, None
                await self._told(progress, total, None if message is None else self._hidden(message))
        finally:
            self._is_telling = False
