"""Models of Ollama's registry, which speaks the protocol of container registries: a manifest, and blobs by digest.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store.download import Download, client, download, get, without_credentials
from tenuto.pipelines.model_store.sources import Offer, RemoteFile

_REGISTRY = "https://registry.ollama.ai"
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_FORM = re.compile(
    r"(?:(?:(?P<scheme>https?)://)?(?P<host>[\w.-]+(?::\d+)?)/(?=[^/]+/))?"
    r"(?:(?P<namespace>[\w-][\w.-]*)/)?(?P<model>[\w-][\w.-]*)(?::(?P<tag>[\w.-]+))?",
    re.ASCII,
)
_MODEL = "model.gguf"
_LAYERS = {
    "model": _MODEL,
    "projector": "mmproj.gguf",
    "adapter": "adapter.gguf",
    "template": "template.txt",
    "system": "system.txt",
    "params": "params.json",
    "messages": "messages.json",
    "license": "license.txt",
}
"""What is taken of a model, by the end of the media type application/vnd.ollama.image.*, and how it is called here."""


class _Layer(BaseModel):
    mediaType: str  # noqa: N815 -- as it stands in the manifest
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


class _Manifest(BaseModel):
    layers: Annotated[list[_Layer], Field(max_length=1000)]


class OllamaModel:
    """A model of Ollama's registry, as `ollama:[HOST/][NAMESPACE/]MODEL[:TAG]` names it; a host may have its scheme.

    Raises:
        ModelLoadFailed: the text is not of this form.
    """

    def __init__(self, source: str, downloads: Path) -> None:
        del downloads
        found = _FORM.fullmatch(source.removeprefix("ollama:"))
        if not found:
            raise ModelLoadFailed(
                f"{source} is not of the form ollama:MODEL[:TAG] or ollama:[HOST/]NAMESPACE/MODEL[:TAG]"
            )
        space, model, tag = found["namespace"] or "library", found["model"], found["tag"] or "latest"
        registry = f"{found['scheme'] or 'https'}://{found['host']}" if found["host"] else _REGISTRY
        self._place, self._tag = f"{registry}/v2/{space}/{model}", tag
        without_credentials(registry)
        self.name = (f"{space}/" if space != "library" else "") + model + (f":{tag}" if tag != "latest" else "")
        self.source = f"ollama:{self.name}" if registry == _REGISTRY else f"ollama:{registry}/{space}/{model}:{tag}"

    def look(self) -> Offer:
        """Ask for the manifest."""
        with client() as http:
            text = get(http, f"{self._place}/manifests/{self._tag}", _MANIFEST)
        try:
            manifest = TypeAdapter(_Manifest).validate_json(text)
        except ValidationError as error:
            raise ModelLoadFailed(f"{self.source}: what the registry says of it is no manifest") from error
        return Offer(self.source, hashlib.sha256(text).hexdigest(), "gguf", self._files(manifest))

    def bring(self, offer: Offer, file: RemoteFile, folder: Path, told: Callable[[int], None]) -> Path:
        """Download the blob. Its digest names it, so that what has come of it goes on whoever asked before."""
        del offer
        target = folder / f"sha256-{file.sha256}"
        with client() as http:
            download(http, Download(f"{self._place}/blobs/sha256:{file.sha256}", file.size), target, told)
        return target

    def _files(self, manifest: _Manifest) -> tuple[RemoteFile, ...]:
        """The layers that make the model, the one that is loaded first."""
        found: dict[str, RemoteFile] = {}
        for layer in manifest.layers:
            name = _LAYERS.get(layer.mediaType.removeprefix("application/vnd.ollama.image."))
            if name is None:
                continue
            if name in found and name == _MODEL:
                raise ModelLoadFailed(f"{self.source} consists of several model files, which is not supported")
            stem, _, suffix = name.rpartition(".")
            number = sum(path.startswith(stem) for path in found)
            path = f"{stem}-{number + 1}.{suffix}" if number else name
            found[path] = RemoteFile(path, layer.size, layer.digest.removeprefix("sha256:"))
        if _MODEL not in found:
            kinds = ", ".join(sorted({layer.mediaType for layer in manifest.layers})) or "nothing"
            raise ModelLoadFailed(f"{self.source} has no model in GGUF; it consists of {kinds}")
        return (found.pop(_MODEL), *found.values())
