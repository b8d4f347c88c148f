"""Prefixes that were named at the start, kept computed: whoever has the model, and however often it is loaded.

Event-loop thread only. They are rendered as a request would be. What is the server's is lent to who sends all of it.
"""

import logging
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio

from tenuto.errors import ModelNotLoaded, TenutoError
from tenuto.pipelines.backend import Sampling
from tenuto.runtime.engine.messages import THE_SERVER, Failed, Round, Stopped
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.runtime.loop.model import Model
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.priority import Priority
from tenuto.sessions.tokens import Tokens

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""An engine that has begun anew, or a model that has been loaded, is found after so long."""
RENDER_S = 60.0
"""A template may write the day, and tools change: so often it is seen whether a prefix is still the same."""
RETRY_S = 30.0
START_S = 10.0
"""How long the start waits for them; what has not been computed by then is computed beside the requests."""
MOST_PREFIXES = 64

State = Literal["ready", "waiting", "failed"]
STATES: tuple[State, ...] = ("ready", "waiting", "failed")


@dataclass(frozen=True, slots=True)
class WarmPrefix:
    """Turns that have all in common but what is said last, in ways that begin differently. `principal` is whose it is;
    `THE_SERVER`: everybody's."""

    name: str
    turns: tuple[Turn, ...]
    principal: str = THE_SERVER

    @property
    def model(self) -> str | None:
        """What the turns call their model."""
        return self.turns[0].model


@dataclass(slots=True, eq=False)
class _Kept:
    """How one stands. `engine` is the one that has computed `tokens` of it."""

    prefix: WarmPrefix
    state: State = "waiting"
    tokens: Tokens = field(default_factory=Tokens)
    engine: Callable[[], EngineClient | None] = lambda: None
    rendered_at: float = 0.0
    failed_at: float | None = None

    @property
    def sequence(self) -> str:
        """Its name at the engine, and on the disk."""
        return f"warm/{self.prefix.principal}/{self.prefix.name}"

    def is_had_by(self, engine: EngineClient) -> bool:
        """Whether an engine still has it."""
        return self.engine() is engine and engine.holds(self.sequence, len(self.tokens))


class WarmPrefixes:
    """Of all models. `preview` gives the tokens that a model which is loaded would read of a turn; `meter` is told how
    many are in each state."""

    def __init__(
        self,
        prefixes: Sequence[WarmPrefix],
        models: Models,
        preview: Callable[[Turn], Awaitable[Tokens]],
        meter: Callable[[Mapping[str, int]], None] = lambda _: None,
    ) -> None:
        self._kept = [_Kept(prefix) for prefix in prefixes]
        self._models, self._preview, self._meter = models, preview, meter
        self._has_looked = anyio.Event()

    async def keep(self) -> None:
        """See to them until cancelled, one after the other: requests come in between."""
        while True:
            for kept in self._kept:
                await self._see_to(kept)
                self._tell()
            self._has_looked.set()
            if not self._kept:
                return
            await anyio.sleep(LOOK_S)

    async def settled(self, timeout_s: float = START_S) -> None:
        """Wait until those of loaded models have been computed, within a bound."""
        with anyio.move_on_after(timeout_s):
            await self._has_looked.wait()

    def _tell(self) -> None:
        counts = Counter(kept.state for kept in self._kept)
        self._meter({state: counts[state] for state in STATES})

    async def _see_to(self, kept: _Kept) -> None:
        now = time.monotonic()
        if kept.failed_at is not None and now - kept.failed_at < RETRY_S:
            return
        try:
            model = self._models.find(kept.prefix.model)
            if kept.is_had_by(model.engine) and now - kept.rendered_at < RENDER_S:
                return
            await self._compute(kept, model)
        except ModelNotLoaded:
            kept.state, kept.failed_at = "waiting", None
        except TenutoError as error:
            logger.warning("the warm prefix %r is not computed: %s", kept.prefix.name, error)
            kept.state, kept.failed_at = "failed", now

    async def _compute(self, kept: _Kept, model: Model) -> None:
        """Have it read, where it is not at hand as it would be rendered now."""
        prefix, engine = kept.prefix, model.engine
        with model.uses.held():  # so that nothing is loaded for it
            tokens = await self._rendered(prefix, model)
        kept.rendered_at = time.monotonic()
        if kept.is_had_by(engine) and tokens == kept.tokens:
            return
        kept.state, kept.tokens, kept.engine = "waiting", tokens, weakref.ref(engine)
        if not tokens:
            kept.state = "ready"  # the template writes nothing before what is said
            return
        opened = engine.submit(
            kept.sequence,
            tokens,
            Round(1, Sampling(temperature=0.0), model.codec.info.stop_tokens),
            principal=prefix.principal,
            named=len(tokens) if prefix.principal == THE_SERVER else 0,
            kept_as=kept.sequence,
            priority=Priority.BACKGROUND,
        )
        try:
            async for event in opened:
                if isinstance(event, Failed):
                    logger.warning("the warm prefix %r is not computed: %s", prefix.name, event.error)
                    kept.state, kept.failed_at = "failed", time.monotonic()
                elif isinstance(event, Stopped):
                    kept.state, kept.failed_at = "ready", None
        except BaseException:
            opened.cancel()
            raise

    async def _rendered(self, prefix: WarmPrefix, model: Model) -> Tokens:
        """What all of its turns begin with."""
        first, *others = [await self._preview(turn) for turn in prefix.turns]
        same = min((first.shared(other) for other in others), default=len(first))
        return first.copy(min(same, model.context - 1))
