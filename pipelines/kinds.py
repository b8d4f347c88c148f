"""What a model makes, told from its file without loading it: text, vectors of texts, or scores of pairs."""

import struct
from typing import Literal

from tenuto.errors import ModelLoadFailed, NotFound
from tenuto.pipelines.finding import is_embedded, located
from tenuto.pipelines.model_store import is_remote
from tenuto.pipelines.scripted.script import read_script

_HEAD_BYTES = 1 << 16
"""Writers of GGUF files put what concerns the architecture before the vocabulary."""
_POOLING = b".pooling_type"
_UINT32, _NO_POOLING, _RANKS = 4, 0, 4
_ENCODER = b"bert"
_ARCHITECTURE = b"general.architecture"


def makes(model: str) -> Literal["text", "vectors", "ranks"]:
    """What the model makes that `--model` names: by its script, or by what its file says of pooling; else text. Nothing
    is fetched, and what is wrong with a file is not told here."""
    if is_embedded(model) or is_remote(model):
        return "text"
    try:
        source = located(model, None)
        if source.kind == "scripted":
            embeds = read_script(source.path).embeds
            return "text" if embeds is None else "ranks" if embeds.ranks else "vectors"
        if source.kind == "mlx":
            return "text"
        with source.path.open("rb") as file:
            return _of_head(file.read(_HEAD_BYTES))
    except (ModelLoadFailed, NotFound, OSError):
        return "text"


def _of_head(head: bytes) -> Literal["text", "vectors", "ranks"]:
    place = head.find(_POOLING)
    if place >= 0 and len(head) >= place + len(_POOLING) + 8:
        kind, pooling = struct.unpack_from("<II", head, place + len(_POOLING))
        if kind == _UINT32 and pooling != _NO_POOLING:
            return "ranks" if pooling == _RANKS else "vectors"
    place = head.find(_ARCHITECTURE)
    value = place + len(_ARCHITECTURE) + 4 + 8
    return "vectors" if place >= 0 and _ENCODER in head[value : value + 32].split(b"\0")[0] else "text"
