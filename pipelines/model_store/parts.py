"""What the files of a GGUF model are for, by their names: weights, a projector, and what came along. Pure.

Ollama's registry keeps more of a model than its weights; what of it is not used is told to whoever fetches it.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from tenuto.pipelines.model_store.records import StoredFile

_NOT_USED = {
    "adapter": "the LoRA adapter is not applied; a server applies it with --lora",
    "template": "the chat template in the weights' file is used instead",
    "system": "requests say what the system message is",
    "params": "requests and the weights' file say how tokens are sampled",
    "messages": "requests bring their messages",
    "license": "read it before you use the model",
}
_NUMBER = re.compile(r"-\d+$")


def is_projector(path: str) -> bool:
    """Whether a file is the part of a model that reads images."""
    name = PurePosixPath(path).name.lower()
    return name.endswith(".gguf") and "mmproj" in name


def not_used(files: Iterable[StoredFile]) -> dict[str, str]:
    """The files that came with a model and are kept beside it only, each with the reason."""
    stems = ((file.path, _NUMBER.sub("", PurePosixPath(file.path).stem)) for file in files)
    return {path: _NOT_USED[stem] for path, stem in stems if stem in _NOT_USED}
