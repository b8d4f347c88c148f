"""A model's codecs that differ in their template's variables alone, as they are asked for. Safe for any thread."""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import LRUCache

from tenuto.pipelines.template_variables import TemplateVariables

logger = logging.getLogger(__name__)

_MOST_TRIED = 16
_KNOWN = 64

T = TypeVar("T")


class VariedCodecs(Generic[T]):
    """Keeps those that are at hand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried = 0
        self._dear: dict[TemplateVariables, T] = {}
        self._known: LRUCache[TemplateVariables, T] = LRUCache(_KNOWN)
        self._finding_out = threading.Lock()

    def may_try(self) -> bool:
        """Whether one more set of variables may be tried, which takes some hundred renderings."""
        with self._lock:
            self._tried += 1
            return self._tried <= _MOST_TRIED

    def find_out(self, attempt: Callable[[], None]) -> None:
        """Try one in a thread beside, and no two at once: nobody waits for what comes of it."""
        threading.Thread(target=self._find_out, args=(attempt,), name="try-template", daemon=True).start()

    def _find_out(self, attempt: Callable[[], None]) -> None:
        with self._finding_out:
            try:
                attempt()
            except Exception:  # it is then as if it had not been tried
                logger.exception("a chat template cannot be tried with variables")

    def get(self, variables: TemplateVariables) -> T | None:
        """The codec with these variables, if it is at hand."""
        with self._lock:
            found = self._dear.get(variables)
            return self._known.get(variables) if found is None else found

    def keep(self, variables: TemplateVariables, codec: T, *, is_dear: bool) -> T:
        """Keep a codec, or give the one that came first. Those that were tried are few and `is_dear`: they stay."""
        with self._lock:
            return (self._dear if is_dear else self._known).setdefault(variables, codec)
