"""Taking a session's caches away: from the engines, and from the disk."""

import logging
from pathlib import Path

import anyio
import anyio.to_thread

from tenuto.errors import StoreFailed
from tenuto.runtime.engine.snapshots import forget
from tenuto.runtime.loop.forgetting import FORGET_S
from tenuto.runtime.loop.models import Model, Models

logger = logging.getLogger(__name__)

_LOOK_S = 0.02


class KeptCaches:
    """Of all models. `folder` is where snapshots lie, also of models that are not loaded; None: nothing is kept."""

    def __init__(self, models: Models, folder: Path | None) -> None:
        self._models, self._folder = models, folder

    async def forget(self, uid: str) -> None:
        """Nothing of a session is on the disk when this returns. Nobody may use the session meanwhile.

        Raises:
            StoreFailed: something may still be there.
        """
        folder = self._folder
        if folder is None:
            self.release(uid)
            return
        for model in self._living():
            await model.engine.forget(f"{uid}/{model.id}", uid)
        # An engine that ends writes what waits: after its end it is for the folder to forget.
        try:
            with anyio.fail_after(FORGET_S):
                while self._models.shelf.is_freeing:  # noqa: ASYNC110
                    await anyio.sleep(_LOOK_S)
        except TimeoutError as error:
            raise StoreFailed("the caches of a session cannot be taken off the disk: an engine does not end") from error
        try:
            await anyio.to_thread.run_sync(forget, folder, uid)
        except OSError as error:
            raise StoreFailed(f"the caches of a session cannot be taken off the disk: {error}") from error

    async def forget_in_time(self, uid: str) -> None:
        """The same for a session that is gone: what cannot be taken away now goes when it is old."""
        try:
            await self.forget(uid)
        except StoreFailed as error:
            logger.warning("%s", error)

    def release(self, uid: str) -> None:
        """Let the engines forget a session, of which nothing is on the disk."""
        for model in self._living():
            model.engine.release(f"{uid}/{model.id}")

    def _living(self) -> list[Model]:
        return [model for model in self._models.shelf.living() if isinstance(model, Model)]
