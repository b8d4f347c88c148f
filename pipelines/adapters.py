"""LoRA adapters in GGUF files: what a file says, held against the model that it is to be applied to.

Only the heads of both are read, so nothing native sees an adapter that is damaged or of another model. No backend.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.gguf_header import GgufHeader, Tensor, read_gguf_header
from tenuto.pipelines.model_facts import gguf_parts
from tenuto.pipelines.model_shape import embeds

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What an adapter may be called, behind the plus in `BASE+NAME`."""
_A, _B = ".lora_a", ".lora_b"
_NORM = "_norm.weight"
_EMBEDDINGS, _OUTPUT = "token_embd.weight", "output.weight"
_TYPE, _KIND, _ALPHA = "general.type", "adapter.type", "adapter.lora.alpha"
_INVOCATION = "adapter.alora.invocation_tokens"
_STRING, _FLOAT32 = 8, 6
_INTEGERS = frozenset({"I8", "I16", "I32", "I64", "F64"})


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's file, and how much of it is applied: 1 is all, as it was trained."""

    path: Path
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.scale) or self.scale == 0.0:
            raise ValueError(f"an adapter is not applied {self.scale:g} times; 1 is as it was trained")


@dataclass(frozen=True, slots=True)
class Fitting:
    """An adapter that fits a model: its pairs of tensors, by their names in the file, and what is not applied of it."""

    adapter: Adapter
    alpha: float
    tensors: Mapping[str, Tensor]
    left_out: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """What it takes in memory, beside its model."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of its pairs, each once."""
        return tuple(sorted({tensor.shape[0] for name, tensor in self.tensors.items() if name.endswith(_B)}))

    @property
    def described(self) -> str:
        """For a person who asks."""
        ranks = " and ".join(map(str, self.ranks))
        left = f"; not applied: {', '.join(self.left_out)}" if self.left_out else ""
        pairs = len(self.tensors) // 2
        return (
            f"{self.adapter.path.name}: {pairs} tensors adapted with rank {ranks}, alpha {self.alpha:g}, scale"
            f" {self.adapter.scale:g}{left}"
        )


def fitting(adapter: Adapter, model: Path) -> Fitting:
    """Read an adapter, and hold it against the GGUF model that it is to be applied to.

    Raises:
        ModelLoadFailed: it is missing or damaged, no adapter of this kind, or of another model.
    """
    path = adapter.path
    header = read_gguf_header(path)
    _check_facts(header, path)
    parts = [read_gguf_header(part) for part in gguf_parts(model)]
    of, base = parts[0], {name: tensor for part in parts for name, tensor in part.tensors.items()}
    if header.architecture != of.architecture:
        raise ModelLoadFailed(
            f"{path} adapts models of the architecture {header.architecture!r}, and {model} is {of.architecture!r}"
        )
    if embeds(of):
        raise ModelLoadFailed(f"{path}: adapters are applied to models that generate text, and {model} does not")
    left_out = tuple(name for name in header.tensors if name.endswith(_NORM))
    tensors = {name: tensor for name, tensor in header.tensors.items() if name not in left_out}
    if not tensors:
        raise ModelLoadFailed(f"{path} adapts nothing: it has no pairs of tensors")
    for name, pair in _pairs(path, tensors):
        _check_pair(path, name, pair, base, model)
    return Fitting(adapter, float(header.values.get(_ALPHA, 0.0)), tensors, left_out)


def fingerprint(adapter: Adapter) -> str:
    """Tells what is applied from any other: by all bytes of the file, and the scale. Reads the whole file."""
    try:
        with adapter.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelLoadFailed(f"{adapter.path} cannot be read: {error.strerror}") from error
    return f"{digest[:32]} x {adapter.scale!r}"


def _check_facts(header: GgufHeader, path: Path) -> None:
    if header.kinds.get(_TYPE) != _STRING or header.values[_TYPE] != "adapter":
        raise ModelLoadFailed(
            f"{path} is no adapter: its {_TYPE} is {header.values.get(_TYPE)!r}; make one with convert_lora_to_gguf.py"
            " of llama.cpp"
        )
    if header.kinds.get(_KIND) != _STRING or header.values[_KIND] != "lora":
        raise ModelLoadFailed(f"{path} is an adapter of the kind {header.values.get(_KIND)!r}, and not lora")
    if header.kinds.get("general.architecture") != _STRING:
        raise ModelLoadFailed(f"{path} is damaged: it does not say for which architecture it is")
    if _INVOCATION in header.values:
        raise ModelLoadFailed(
            f"{path} is to be switched on within a text (aLoRA), which is not supported; here an adapter is applied to"
            " all of it"
        )
    alpha = header.values.get(_ALPHA, 0.0)
    if _ALPHA in header.values and (header.kinds[_ALPHA] != _FLOAT32 or not math.isfinite(alpha)):
        raise ModelLoadFailed(f"{path} is damaged: its {_ALPHA} is no number")


def _pairs(path: Path, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Each tensor of the base that is adapted, with the two that adapt it."""
    if others := [name[:80] for name in tensors if not name.endswith((_A, _B))]:
        raise ModelLoadFailed(f"{path} has the tensor {others[0]!r}, which is no part of a LoRA adapter")
    for name, tensor in tensors.items():
        stem, is_first = name[: -len(_A)], name.endswith(_A)
        other = tensors.get(stem + (_B if is_first else _A))
        if other is None:
            raise ModelLoadFailed(f"{path} is damaged: the pair of tensors for {stem[:80]!r} lacks one")
        for each in (tensor, other):
            if len(each.shape) < 2 or 0 in each.shape or not each.kind or each.kind in _INTEGERS:
                raise ModelLoadFailed(
                    f"{path} is damaged: its tensors for {stem[:80]!r} are no matrices that can be used"
                )
        if is_first:
            yield stem, (tensor, other)


def _check_pair(path: Path, name: str, pair: tuple[Tensor, Tensor], base: Mapping[str, Tensor], model: Path) -> None:
    """See that the product of a pair has the shape of what it is added to."""
    adapted = base.get(name)
    if adapted is None:
        raise ModelLoadFailed(f"{path} adapts {name[:80]!r}, which {model} does not have: it is for another model")
    if name == _EMBEDDINGS and _OUTPUT not in base:
        raise ModelLoadFailed(
            f"{path} adapts {name!r}, which is the output of {model} too, and llama.cpp cannot adapt such a one"
        )
    first, second = pair
    # A row of the embeddings is looked up, so their first matrix lies the other way round.
    inner, columns = (0, 1) if name == _EMBEDDINGS else (1, 0)
    sizes = (first.shape[columns], second.shape[1], *first.shape[2:])
    rest = adapted.shape[2:]
    wanted = (*(adapted.shape[1::-1] if name == _EMBEDDINGS else adapted.shape[:2]), *rest)
    if sizes != wanted or second.shape[2:] != rest:
        raise ModelLoadFailed(
            f"{path} is for another model: its tensors for {name!r} are {_shape(first)} and {_shape(second)}, and that"
            f" of {model} is {_shape(adapted)}"
        )
    if first.shape[inner] != second.shape[0]:
        raise ModelLoadFailed(
            f"{path} is damaged: its tensors for {name!r} have the ranks {first.shape[inner]} and {second.shape[0]}"
        )


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape))


def parsed(text: str) -> Adapter:
    """What a user writes for one: `PATH`, or `PATH@SCALE`.

    Raises:
        ValueError: the scale is none.
    """
    path, at, scale = text.rpartition("@")
    try:
        return Adapter(Path(path), float(scale)) if at and path else Adapter(Path(text))
    except ValueError:
        if re.fullmatch(r"[-+.\deE]+|nan|inf", scale):
            raise
        return Adapter(Path(text))
