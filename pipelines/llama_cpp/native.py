"""The native library and a loaded model: how llama.cpp is loaded, silenced and asked for facts.

Models are immutable once loaded: any thread may read them. No cache and no steps here (see context.py).
"""

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import llama_cpp as lib

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.backend import Weights
from tenuto.pipelines.infill import InfillTokens
from tenuto.pipelines.llama_cpp.zeros import replace_writing
from tenuto.pipelines.model_facts import gguf_parts
from tenuto.pipelines.model_shape import ENCODERS
from tenuto.pipelines.sampling_defaults import SamplingDefaults

_LOG_LINES = 12
_ERROR_LEVELS = frozenset({3, 4})  # GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR
_CONTINUED = 5  # GGML_LOG_LEVEL_CONT: belongs to the line before

_ADVICE = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}
"""The file's names for how tokens are to be chosen, behind `general.sampling.`."""

_log: deque[str] = deque(maxlen=_LOG_LINES)
_loading = threading.Lock()
_in_memory: "WeakValueDictionary[_Key, _Weights]" = WeakValueDictionary()


def _keep_errors() -> Any:
    kept = False

    def on_line(level: int, text: bytes | None, _user_data: ctypes.c_void_p) -> None:
        nonlocal kept
        kept = level in _ERROR_LEVELS or (level == _CONTINUED and kept)
        line = (text or b"").decode(errors="replace").strip()
        if kept and line:
            _log.append(line)

    return lib.llama_log_callback(on_line)


log_callback = _keep_errors()  # native code holds the pointer for ever: the reference must never be dropped
lib.llama_log_set(log_callback, ctypes.c_void_p(0))
lib.llama_backend_init()
zeros = replace_writing()  # likewise


def log_tail() -> str:
    """Give the last warnings and errors that the native library wrote since the last load began."""
    return "\n".join(_log)


def failure(what: str) -> ModelLoadFailed:
    """Make an error that says what failed and what the native library said about it."""
    tail = log_tail()
    return ModelLoadFailed(f"{what}; llama.cpp says:\n{tail}" if tail else what)


def version() -> str:
    """Of the library."""
    return str(lib.__version__)


def prefers_plain() -> bool:
    """Whether this build of the library attends faster with scores written out: one without AVX-512 does
    (docs/decisions/0065)."""
    return b"AVX512 = 1" not in lib.llama_print_system_info()


def can_offload() -> bool:
    """Whether this build of the library can put layers on an accelerator."""
    return bool(lib.llama_supports_gpu_offload())


@dataclass(frozen=True, slots=True)
class Placement:
    """How many layers lie on accelerators, below 0: all; and how many on each, where that was chosen."""

    gpu_layers: int
    on_each: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Key:
    files: tuple[object, ...]
    placement: Placement


class _Weights:
    """What is in memory of a file, once for all models of it. Freed with the last of them."""

    def __init__(self, path: Path, parameters: Any) -> None:
        self.pointer = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.pointer:
            raise failure(f"{path} cannot be loaded")
        # At exit the process frees everything anyway, and other threads may still be reading.
        weakref.finalize(self, lib.llama_model_free, self.pointer).atexit = False
        self.is_offloaded = bool(parameters.n_gpu_layers) and can_offload()
        self.changing = threading.RLock()


def placement_of(path: Path) -> Placement | None:
    """Where the weights of a file lie that are in memory already; None where they are not.

    Raises:
        OSError: a file has gone.
    """
    files = _identity(path)
    with _loading:
        return next((key.placement for key in list(_in_memory.keys()) if key.files == files), None)


def _identity(path: Path) -> tuple[object, ...]:
    """Tells one state of a model's files from any other."""
    stats = [(part, part.stat()) for part in gguf_parts(path.resolve())]
    return tuple((str(part), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for part, stat in stats)


class Model:
    """Weights and vocabulary of a GGUF file, or its vocabulary alone. Freed when nobody holds it any more.

    Models of the same file, placed in the same way, have one copy of the weights between them, which is freed with the
    last. `gpu_layers` below 0: all. `on_each`: how many of them each accelerator has, where there are several.

    Raises:
        ModelLoadFailed: the native library refuses the file; the text has what it said.
    """

    def __init__(
        self, path: Path, *, vocabulary_only: bool = False, gpu_layers: int = 0, on_each: Sequence[int] = ()
    ) -> None:
        parameters = lib.llama_model_default_params()
        if len(on_each) > 1:
            shares = (ctypes.c_float * lib.llama_max_devices())(*on_each)
            parameters.tensor_split = shares
        parameters.vocab_only = vocabulary_only
        parameters.n_gpu_layers = 0 if vocabulary_only else gpu_layers
        try:
            key = None if vocabulary_only else _Key(_identity(path), Placement(gpu_layers, tuple(on_each)))
        except OSError as error:
            raise ModelLoadFailed(f"{path} cannot be read: {error.strerror}") from error
        with _loading:
            weights = None if key is None else _in_memory.get(key)
            if weights is None:
                _log.clear()
                weights = _Weights(path, parameters)
                if key is not None:
                    _in_memory[key] = weights
        self._weights = weights
        self.pointer, self.is_offloaded = weights.pointer, weights.is_offloaded
        self.path = path
        self.vocab = lib.llama_model_get_vocab(self.pointer)

    @property
    def changing(self) -> AbstractContextManager[object]:
        """To be held while adapters join or leave the weights, and while the library looks at which there are: it
        does where a context is made, and in the first step after one was changed."""
        return self._weights.changing

    @property
    def vocabulary(self) -> int:
        """How many entries the vocabulary has, and each row of logits with it."""
        return int(lib.llama_vocab_n_tokens(self.vocab))

    @property
    def training_context(self) -> int:
        """The context length that the model was trained for."""
        return int(lib.llama_model_n_ctx_train(self.pointer))

    @property
    def is_recurrent(self) -> bool:
        """Whether some layers keep a running state, which cannot be cut back to a prefix."""
        return bool(lib.llama_model_is_recurrent(self.pointer) or lib.llama_model_is_hybrid(self.pointer))

    @property
    def can_truncate(self) -> bool:
        """Whether a cache can be cut back: not a running state, and not one that forgets outside of a window."""
        return not self.is_recurrent and lib.llama_model_n_swa(self.pointer) == 0

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights."""
        return int(lib.llama_model_size(self.pointer))

    @property
    def is_decoder(self) -> bool:
        """Whether the model generates text by itself: no encoder before it, and not by diffusion."""
        return bool(lib.llama_model_has_decoder(self.pointer)) and not (
            lib.llama_model_has_encoder(self.pointer) or lib.llama_model_is_diffusion(self.pointer)
        )

    @property
    def pooling(self) -> int | None:
        """How what its tokens give becomes one vector, by the library's number; None where the file does not say."""
        named = self.metadata(f"{self.metadata('general.architecture')}.pooling_type")
        return int(named) if named and named.isdecimal() and int(named) != lib.LLAMA_POOLING_TYPE_NONE else None

    @property
    def embeds(self) -> bool:
        """Whether it is made for vectors of texts, or scores of pairs: its file names a pooling, or it only encodes."""
        is_encoder = not lib.llama_model_has_decoder(self.pointer) or self.metadata("general.architecture") in ENCODERS
        return self.pooling is not None or is_encoder

    @property
    def description(self) -> str:
        """The file's own name for it, size, architecture and quantisation in words: `Qwen3, 1.7B llama, Q8_0`."""
        weights = self.weights
        size = f"{_in_words(weights.parameters)} {weights.architecture}"
        return ", ".join(part for part in (self.metadata("general.name"), size, weights.quantisation) if part)

    @property
    def weights(self) -> Weights:
        """What the file says of its weights."""
        buffer = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.pointer, buffer, len(buffer))
        # The library's "ARCHITECTURE SIZE QUANTISATION" knows the sizes of famous models alone.
        architecture, _, rest = buffer.value.decode(errors="replace").partition(" ")
        return Weights(
            form="gguf",
            architecture=architecture,
            quantisation=rest.partition(" ")[2],
            parameters=int(lib.llama_model_n_params(self.pointer)),
            nbytes=self.weight_bytes,
            width=int(lib.llama_model_n_embd(self.pointer)),
            are_on_device=self.is_offloaded,
        )

    @property
    def infill(self) -> InfillTokens | None:
        """The tokens with which the model fills in the middle of a text, if the file or the library knows them."""
        ask = (lib.llama_vocab_fim_pre, lib.llama_vocab_fim_suf, lib.llama_vocab_fim_mid)
        prefix, suffix, middle = (int(one(self.vocab)) for one in ask)
        if min(prefix, suffix, middle) < 0:
            return None
        repository, file = int(lib.llama_vocab_fim_rep(self.vocab)), int(lib.llama_vocab_fim_sep(self.vocab))
        return InfillTokens(
            prefix, suffix, middle, repository if repository >= 0 else None, file if file >= 0 else None
        )

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """How the file advises to choose tokens."""
        named = {name: self.metadata(f"general.sampling.{key}") for name, key in _ADVICE.items()}
        return SamplingDefaults.advised({name: _number(text) for name, text in named.items() if text is not None})

    @property
    def chat_template(self) -> str | None:
        """The Jinja template that the file carries."""
        return self.metadata("tokenizer.chat_template")

    def metadata(self, key: str) -> str | None:
        """Give a value of the file's metadata as text; None where there is none, and for arrays."""
        buffer = ctypes.create_string_buffer(1024)
        length = lib.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        if length >= len(buffer):
            buffer = ctypes.create_string_buffer(length + 1)
            length = lib.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        return None if length < 0 else buffer.value.decode(errors="replace")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _in_words(parameters: int) -> str:
    """A count as people write it: 1.4M."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if parameters >= size:
            return f"{parameters / size:.1f}{unit}"
    return str(parameters)
