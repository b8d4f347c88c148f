"""Every kind of source, by how a user writes it. A new one is a file beside this and a line below."""

from collections.abc import Callable
from pathlib import Path

from tenuto.pipelines.model_store.hub import HubModel
from tenuto.pipelines.model_store.local import LocalModel
from tenuto.pipelines.model_store.mirror import MirroredModel
from tenuto.pipelines.model_store.ollama import OllamaModel
from tenuto.pipelines.model_store.sources import ModelSource

_REMOTE: dict[str, Callable[[str, Path], ModelSource]] = {
    "hf:": HubModel,
    "ollama:": OllamaModel,
    "https://": MirroredModel,
    "http://": MirroredModel,
}


def is_remote(source: str) -> bool:
    """Whether a source is somewhere else than on this machine."""
    return source.startswith(tuple(_REMOTE))


def source_of(source: str, downloads: Path) -> ModelSource:
    """The source that a user names; nothing is looked up. `downloads` is where models are kept.

    Raises:
        ModelLoadFailed: it has not the form that its beginning promises.
    """
    for beginning, made in _REMOTE.items():
        if source.startswith(beginning):
            return made(source, downloads)
    return LocalModel(Path(source))
