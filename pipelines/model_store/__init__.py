"""Models that are kept on this machine under names, in versions: what the commands `tenuto models` work on."""

from tenuto.pipelines.model_store.catalogue import is_remote, source_of
from tenuto.pipelines.model_store.folder import StoredModel
from tenuto.pipelines.model_store.local import LocalModel
from tenuto.pipelines.model_store.names import is_name
from tenuto.pipelines.model_store.pull import ensure, pull
from tenuto.pipelines.model_store.records import Kind, StoredFile, Version
from tenuto.pipelines.model_store.sources import Offer, Progress
from tenuto.pipelines.model_store.store import ModelStore
from tenuto.pipelines.model_store.verify import Damage, verify

__all__ = [
    "Damage",
    "Kind",
    "LocalModel",
    "ModelStore",
    "Offer",
    "Progress",
    "StoredFile",
    "StoredModel",
    "Version",
    "ensure",
    "is_name",
    "is_remote",
    "pull",
    "source_of",
    "verify",
]
