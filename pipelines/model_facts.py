"""What a model's files say of it, read without loading it: family, context, quantisation, parameters. No backend."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.gguf_header import read_gguf_header
from tenuto.pipelines.model_store import Kind

_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")
_LONGEST_HEADER = 100 << 20


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """None or empty: the files do not say. `width` is that of its embeddings."""

    format: str
    architecture: str
    context: int | None
    quantisation: str
    parameters: int
    width: int | None
    chat_template: str | None


def read_facts(kind: Kind, path: Path) -> ModelFacts:
    """Read what a GGUF file, or the folder of an MLX model, says of itself.

    Raises:
        ModelLoadFailed: a file is missing, damaged, or not supported; the text says which of these.
    """
    return _of_gguf(path) if kind == "gguf" else _of_mlx(path)


def _of_gguf(path: Path) -> ModelFacts:
    headers = [read_gguf_header(each) for each in gguf_parts(path)]
    first = headers[0]
    width = first.values.get(f"{first.architecture}.embedding_length")
    return ModelFacts(
        format="gguf",
        architecture=first.architecture,
        context=first.context,
        quantisation=first.quantisation,
        parameters=sum(header.parameters for header in headers),
        width=width if isinstance(width, int) else None,
        chat_template=first.chat_template,
    )


def gguf_parts(path: Path) -> list[Path]:
    """All files of a GGUF model, which may have been cut into several: NAME-00001-of-00003.gguf."""
    found = _PART.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[1])
    return [path.with_name(f"{stem}-{number:05}-of-{found[1]}.gguf") for number in range(1, count + 1)]


def _of_mlx(folder: Path) -> ModelFacts:
    config = _json(folder / "config.json")
    of_text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    assert isinstance(of_text, dict)
    scheme = config.get("quantization") or config.get("quantization_config")
    bits = scheme.get("bits") if isinstance(scheme, dict) else None
    return ModelFacts(
        format="mlx",
        architecture=str(config.get("model_type", "")),
        context=_number(of_text.get("max_position_embeddings")),
        quantisation=f"{bits} bits" if bits else str(config.get("torch_dtype") or config.get("dtype") or ""),
        parameters=sum(_parameters(path, _number(bits)) for path in sorted(folder.glob("model*.safetensors"))),
        width=_number(of_text.get("hidden_size")),
        chat_template=_template(folder),
    )


def _template(folder: Path) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text(encoding="utf-8", errors="replace")
    settings = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    found = settings.get("chat_template")
    return found if isinstance(found, str) else None


def _parameters(path: Path, bits: int | None) -> int:
    """How many parameters a file of weights has. Quantised ones lie several in a word, beside their scales.

    https://huggingface.co/docs/safetensors/index#format
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_LONGEST_HEADER, path.stat().st_size):
                raise ModelLoadFailed(f"{path} is damaged: it ends before its head does")
            header = json.loads(file.read(length))
        tensors = {name: (each["dtype"], math.prod(each["shape"])) for name, each in header.items() if "dtype" in each}
        end = max((each["data_offsets"][1] for each in header.values() if "data_offsets" in each), default=0)
    except OSError as error:
        raise ModelLoadFailed(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelLoadFailed(f"{path} is damaged: its head is not that of safetensors") from error
    if 8 + length + end > path.stat().st_size:
        raise ModelLoadFailed(f"{path} is damaged: it ends before its tensors do")
    return sum(
        count * 32 // bits if bits and kind == "U32" else count
        for name, (kind, count) in tensors.items()
        if not name.endswith((".scales", ".biases"))
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelLoadFailed(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelLoadFailed(f"{path} is damaged: it is not JSON") from error
    if not isinstance(found, dict):
        raise ModelLoadFailed(f"{path} is damaged: it is not a JSON object")
    return found


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
