"""Which file in a folder is the projector of a GGUF model, by its name. No file is opened.

Those who publish vision models call it `mmproj-MODEL-f16.gguf` or `MODEL.mmproj-f16.gguf`, or only `mmproj-f16.gguf` in
a folder that holds one model.
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TypeVar

P = TypeVar("P", bound=PurePath)

_WORD = "mmproj"
_PRECISION = re.compile(r"[-._]?(?:f16|f32|bf16|q8_0|fp16)$", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_GENERIC = ("", "model")


def projector_beside(model: Path) -> Path | None:
    """The projector that lies beside a model; None where there is none, or it may belong to another one."""
    files = sorted(path for path in model.parent.glob("*.gguf") if path.is_file())
    projectors = [path for path in files if _WORD in path.stem.lower()]
    if model in projectors:
        return None
    others = {_PART.sub("", path.stem) for path in files if path not in projectors}
    found = projectors_of(model, projectors)
    return found[0] if found and (_of_model(found[0]) not in _GENERIC or len(others) == 1) else None


def projectors_of(model: PurePath, projectors: Sequence[P]) -> list[P]:
    """Those that are a model's by their names, else those whose names name none."""
    own = [path for path in projectors if (name := _of_model(path)) not in _GENERIC and _begins(model.stem, name)]
    if own:
        longest = max(len(_of_model(path)) for path in own)
        return [path for path in own if len(_of_model(path)) == longest]
    return [path for path in projectors if _of_model(path) in _GENERIC]


def _of_model(projector: PurePath) -> str:
    """What a projector's name says of its model."""
    words = re.sub(_WORD, "", projector.stem, flags=re.IGNORECASE).strip("-._")
    return _PRECISION.sub("", words).strip("-._").lower()


def _begins(model: str, name: str) -> bool:
    rest = model.lower()[len(name) :]
    return model.lower().startswith(name) and not rest[:1].isalnum()
