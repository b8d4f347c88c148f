"""From what a user writes after `--model` to a pipeline: find the model, fetch it, check it, and fit it into memory.

Importing this loads no backend.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from weakref import WeakValueDictionary

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.base import Codec, Pipeline
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import Source, is_embedded, located, user_cache
from tenuto.pipelines.load_settings import LoadSettings
from tenuto.pipelines.opening import cores, fit, layout_of, load_source, load_source_codec, on_devices
from tenuto.pipelines.projector_files import projector_beside
from tenuto.pipelines.sampling_defaults import GREEDY
from tenuto.pipelines.trial import Trial
from tenuto.pipelines.trial import require as trial_of

__all__ = ["LoadSettings", "find", "fit", "found", "layout_of", "load", "load_any", "load_codec", "load_source"]

logger = logging.getLogger(__name__)


_BY_DEFAULT = LoadSettings()
_SLOTS_OF_A_CORE = 4
_turns: "WeakValueDictionary[str, Lock]" = WeakValueDictionary()
_turns_lock = Lock()


def find(model: str, settings: LoadSettings = _BY_DEFAULT) -> Source:
    """Find the file or folder of a model, and fetch it if it is somewhere else and not stored yet.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
    """
    return located(model, settings.downloads)


def load(model: str, settings: LoadSettings = _BY_DEFAULT) -> Pipeline:
    """Load a model that generates, as `load_any` does.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    pipeline = load_any(model, settings)
    if isinstance(pipeline, EmbeddingPipeline):
        pipeline.embedder.close()
        raise ModelLoadFailed(f"{model} makes vectors or scores of texts, and generates none")
    return pipeline


def load_codec(model: str, settings: LoadSettings = _BY_DEFAULT) -> Codec | None:
    """Load the codec alone of a model that generates, for the process beside that in which it is loaded.

    None where it needs the weights too: of what is no GGUF file and no script, of what reads images or has an adapter,
    and of what embeds. A version of the store is held until the codec is gone.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    source, settings = found(model, settings)
    return load_source_codec(source, settings)


def load_any(model: str, settings: LoadSettings = _BY_DEFAULT) -> Pipeline | EmbeddingPipeline:
    """Load a model, whether it generates or embeds.

    It is `embedded`, a GGUF file, an MLX folder, `hf:OWNER/REPO[:QUANT]`, `scripted:FILE`, or the name of a stored
    model.

    What others have made is tried in a process of its own first, a file or a folder. The embedded model is there in two
    forms, `embedded:gguf` and `embedded:mlx`; `embedded` is the one that suits the machine.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    source, settings = found(model, settings)
    with _turn(source):
        return _opened(model, source, settings)


@contextmanager
def _turn(source: Source) -> Iterator[None]:
    """One load of a file at a time: the next one is planned when the weights are there, which both then share."""
    with _turns_lock:
        turn = _turns.setdefault(str(source.path), Lock())
    with turn:
        yield


def _opened(model: str, source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    if source.kind != "gguf" and settings.adapter is not None:
        raise ModelLoadFailed(
            f"{settings.adapter.path} cannot be applied to {source.path}: adapters are for GGUF models; `mlx_lm.fuse`"
            " makes a model of its own of an MLX model and an adapter"
        )
    if is_embedded(model):
        # Ours needs no trial; an adapter to it is somebody else's.
        embedded = load_source(source, settings) if settings.adapter is None else _tried(source, settings)
        assert isinstance(embedded, Pipeline)
        # The small default model says one thing well; chance only harms it.
        return replace(embedded, defaults=GREEDY)
    if source.kind == "scripted":
        return load_source(source, settings)
    if source.kind != "gguf" and settings.projector is not None:
        raise ModelLoadFailed(f"{source.path} is no GGUF file, and only those have a projector")
    if settings.projector is not None and not settings.projector.is_file():
        raise ModelLoadFailed(f"there is no projector {settings.projector}")
    try:
        return _tried(source, settings)
    except ModelLoadFailed as error:
        if source.projector is None or settings.projector is not None:
            raise
        logger.warning("%s reads no images, although %s lies beside it: %s", source.id, source.projector, error)
        return _tried(replace(source, projector=None), settings)


def found(model: str, settings: LoadSettings) -> tuple[Source, LoadSettings]:
    """Find a model with its projector, and what it may take.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
    """
    source = find(model, settings)
    if is_embedded(model):
        # More of its short conversations at a time than four a core gain nothing.
        return source, replace(settings, most_slots=min(settings.most_slots, _SLOTS_OF_A_CORE * cores()))
    beside = projector_beside(source.path) if source.kind == "gguf" else None
    return replace(source, projector=settings.projector or source.projector or beside), settings


def _tried(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    assert source.kind != "scripted", "nobody tries a script"
    projector = "" if source.projector is None else str(source.projector)
    settings = replace(settings, layout=settings.layout or layout_of(source, settings))
    layers, cache_type = on_devices(settings), settings.layout.cache_type if settings.layout else "f16"
    trial = Trial(source.kind, str(source.path), layers, settings.threads or cores(), projector, cache_type)
    if settings.adapter is not None:
        trial = replace(trial, adapter=str(settings.adapter.path), scale=settings.adapter.scale)
    passed = trial_of(trial, settings.verdicts or user_cache() / "verdicts")
    return replace(load_source(source, settings), trial=passed)
