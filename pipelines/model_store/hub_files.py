"""Which files of a repository make one model: a quantisation in GGUF, or a folder for MLX. Pure."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store.parts import is_projector
from tenuto.pipelines.model_store.sources import Offer, RemoteFile
from tenuto.pipelines.projector_files import projectors_of

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANT = re.compile(r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32))$", re.IGNORECASE)
_PREFERRED = ("Q4_K_M", "Q8_0")
_PRECISIONS = ("F16", "BF16", "Q8_0", "F32")
_MLX = "MLX"
# What lies in the folder of an MLX model, without its subfolders. Code that a repository brings is not fetched.
_MLX_WEIGHTS = re.compile(r"model[^/]*\.safetensors")
MLX_FILES = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|chat_template|model[^/]*\.index)\.json"
    rf"|chat_template\.jinja|additional_chat_templates/[^/]+\.jinja|{_MLX_WEIGHTS.pattern}"
)


def model_files(files: Sequence[RemoteFile], quant: str | None, repository: str, revision: str | None) -> Offer:
    """Choose a model in a quantisation: GGUF where there is any, else safetensors, for MLX.

    `mlx` in place of a quantisation asks for safetensors. Without one: Q4_K_M, else Q8_0, else the only one.

    Raises:
        ModelLoadFailed: there is no such quantisation, or a part of it is missing.
    """
    source = f"hf:{repository}" + (f":{quant}" if quant else "")
    weights = [file for file in files if _MLX_WEIGHTS.fullmatch(file.path)]
    if (quant or "").upper() == _MLX or (quant is None and weights and not any(map(_is_gguf, files))):
        return Offer(source, revision, "mlx", tuple(choose_mlx(files, repository)))
    chosen = choose(files, quant, repository)
    projector = choose_projector(files, chosen[0])
    return Offer(source, revision, "gguf", (*chosen, *([projector] if projector else [])))


def choose_projector(files: Sequence[RemoteFile], model: RemoteFile) -> RemoteFile | None:
    """The part that reads images for a model, where the repository has one; of several precisions F16 before others."""
    found = {PurePosixPath(file.path): file for file in sorted(files, key=lambda file: file.path)}
    own = projectors_of(PurePosixPath(model.path), [path for path in found if is_projector(str(path))])

    def rank(path: PurePosixPath) -> int:
        match = _QUANT.search(path.stem)
        name = match[1].upper() if match else ""
        return _PRECISIONS.index(name) if name in _PRECISIONS else len(_PRECISIONS)

    return found[min(own, key=rank)] if own else None


def choose_mlx(files: Sequence[RemoteFile], repository: str) -> list[RemoteFile]:
    """Give the files of the MLX model, the small ones first.

    Raises:
        ModelLoadFailed: there is none, or a part of it is missing.
    """
    found = sorted((file for file in files if MLX_FILES.fullmatch(file.path)), key=lambda file: (file.size, file.path))
    names = {file.path for file in found}
    if not any(_MLX_WEIGHTS.fullmatch(name) for name in names):
        raise ModelLoadFailed(f"hf:{repository} has no model*.safetensors for MLX")
    for name in ("config.json", "tokenizer.json"):
        if name not in names:
            raise ModelLoadFailed(f"hf:{repository} has safetensors and no {name}; MLX cannot load it")
    return found


def choose(files: Sequence[RemoteFile], quant: str | None, repository: str) -> list[RemoteFile]:
    """Give the files of one quantisation, the parts of a split one in order.

    Raises:
        ModelLoadFailed: none fits; the text names those that are there.
    """
    found: dict[str, list[RemoteFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if _is_gguf(file):
            stem = _SPLIT.sub("", file.path[: -len(".gguf")])
            match = _QUANT.search(stem)
            found.setdefault(match[1].upper() if match else stem, []).append(file)
    wanted = [quant.upper()] if quant else [*_PREFERRED, *(list(found) if len(found) == 1 else [])]
    for name in wanted:
        if name in found:
            return _one_set(found[name])
    what = (
        f"no quantisation {quant}"
        if quant
        else "several quantisations; name one"
        if found
        else "no GGUF file and no safetensors"
    )
    raise ModelLoadFailed(f"hf:{repository} has {what}; there are: {', '.join(sorted(found)) or 'none'}")


def _is_gguf(file: RemoteFile) -> bool:
    """Whether it is a model, and not what reads pictures for one."""
    return file.path.lower().endswith(".gguf") and not is_projector(file.path)


def _one_set(files: list[RemoteFile]) -> list[RemoteFile]:
    """A repository may hold a quantisation under two names: take the first, with all of its parts."""
    stem = _SPLIT.sub("", files[0].path[: -len(".gguf")])
    found = [file for file in files if _SPLIT.sub("", file.path[: -len(".gguf")]) == stem]
    split = _SPLIT.search(found[0].path[: -len(".gguf")])
    wanted = [f"{stem}-{number:05}-of-{split[2]}.gguf" for number in range(1, int(split[2]) + 1)] if split else []
    missing = sorted({*wanted} - {file.path for file in found})
    if missing:
        raise ModelLoadFailed(f"{found[0].path} is one of {len(wanted)} parts, and {missing[0]} is not there")
    return found
