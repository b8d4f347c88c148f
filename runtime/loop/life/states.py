"""The life of a model: a table of (state, trigger) -> state. Pure. docs/models-life.md is drawn from it."""

from enum import StrEnum


class ModelState(StrEnum):
    """Where a model stands."""

    AVAILABLE = "available"
    """It can be loaded."""
    LOADING = "loading"
    """It is being fetched, waits for room, or is being read."""
    LOADED = "loaded"
    UNLOADING = "unloading"
    """It takes nothing new; it is freed when nobody uses it any more."""
    FAILED = "failed"
    """Its last load failed; the next request after a while tries again."""


class ModelTrigger(StrEnum):
    """What can happen to a model."""

    LOAD = "load"
    """Somebody asks for it."""
    READY = "ready"
    FAIL = "fail"
    ABANDON = "abandon"
    """Nobody waits for it any more, and it is not being read yet."""
    UNLOAD = "unload"
    """By command, because it was idle for long, or to make room."""
    FREED = "freed"


TABLE: dict[tuple[ModelState, ModelTrigger], ModelState] = {
    (ModelState.AVAILABLE, ModelTrigger.LOAD): ModelState.LOADING,
    (ModelState.FAILED, ModelTrigger.LOAD): ModelState.LOADING,
    (ModelState.LOADING, ModelTrigger.READY): ModelState.LOADED,
    (ModelState.LOADING, ModelTrigger.FAIL): ModelState.FAILED,
    (ModelState.LOADING, ModelTrigger.ABANDON): ModelState.AVAILABLE,
    (ModelState.LOADED, ModelTrigger.UNLOAD): ModelState.UNLOADING,
    (ModelState.UNLOADING, ModelTrigger.FREED): ModelState.AVAILABLE,
}


class IllegalModelTransition(Exception):
    """A bug: what happened cannot happen to a model in this state. Nothing has changed."""


def advanced(state: ModelState, trigger: ModelTrigger) -> ModelState:
    """The next state. Raises IllegalModelTransition."""
    try:
        return TABLE[state, trigger]
    except KeyError:
        raise IllegalModelTransition(f"{trigger} while {state}") from None
