"""A GGUF model that embeds or ranks, as the engine uses it: whole texts in one step, nothing kept between steps."""

from collections.abc import Sequence
from typing import Any

import llama_cpp as lib
import numpy as np

from tenuto.errors import GenerationFailed, ModelLoadFailed
from tenuto.pipelines.backend import BackendInfo
from tenuto.pipelines.embedding import EmbedderInfo, TextTokens, Vectors, check_texts, normalised
from tenuto.pipelines.llama_cpp.batch import Batch, Feed
from tenuto.pipelines.llama_cpp.native import Model, failure, log_tail
from tenuto.pipelines.llama_cpp.settings import LlamaSettings, how_it_shares
from tenuto.pipelines.llama_cpp.team import Teams
from tenuto.pipelines.llama_cpp.timed_step import timed_decode

_MOST_TEXTS = 64
_SHARED_TOKENS = 64
"""So many tokens share a step on processors, which are about at their full speed then. Attention is computed between
all tokens of a step, of whichever texts: with 512 it takes half of the time."""
_PRECISE_TOKENS = 2048
"""The longest step whose attention is computed in full: the numbers of all its pairs of tokens lie in memory."""
_OUTPUT_BYTES = 4


class LlamaEmbedder:
    """A native context with pooling, as the file names it.

    Raises:
        ModelLoadFailed: the file names no pooling, or the model does not fit into memory.
    """

    def __init__(self, model: Model, settings: LlamaSettings) -> None:
        if model.pooling is None:
            raise ModelLoadFailed(f"{model.path}: an encoder whose file names no pooling makes no vector of a text")
        self._model = model
        shared = settings.batch_tokens if model.is_offloaded else min(settings.batch_tokens, _SHARED_TOKENS)
        context = min(settings.cells, model.training_context or settings.cells)
        # The library plans for the same number of tokens in each of so many texts, and asserts that it comes out even.
        step = -(-max(shared, context) // _MOST_TEXTS) * _MOST_TEXTS
        self._pointer: Any = _open(model, step, settings.threads)
        self._memory = lib.llama_get_memory(self._pointer)
        self._batch = Batch(step)
        self._teams = Teams(settings.threads)
        ranks = model.pooling == lib.LLAMA_POOLING_TYPE_RANK
        self._info = EmbedderInfo(
            BackendInfo(
                context=context,
                slots=0,
                cells=0,
                batch_tokens=shared,
                bytes_per_token=0,
                description=model.description,
                weights=model.weights,
                runs_on=f"llama.cpp, {settings.threads} thread{'s' if settings.threads > 1 else ''}",
                further=how_it_shares(model, settings.threads),
            ),
            width=int((lib.llama_model_n_cls_out if ranks else lib.llama_model_n_embd_out)(model.pointer)),
            texts=_MOST_TEXTS,
            ranks=ranks,
        )

    @property
    def info(self) -> EmbedderInfo:
        """Facts that do not change."""
        return self._info

    def embed(self, texts: Sequence[TextTokens]) -> Vectors:
        """One step.

        Raises:
            ValueError: the step is invalid.
            GenerationFailed: the step failed.
        """
        check_texts(texts, self._info, self._model.vocabulary)
        if self._memory:
            lib.llama_memory_clear(self._memory, False)
        self._batch.fill([Feed(number, 0, text, 1) for number, text in enumerate(texts)], pooled=True)
        status = timed_decode(self._pointer, self._batch.native, self._teams, self._model)
        if status != 0:
            raise GenerationFailed(f"llama_decode failed with {status}: {log_tail()}")
        vectors = np.stack([self._vector(number) for number in range(len(texts))])
        return vectors if self._info.ranks else normalised(vectors)

    def close(self) -> None:
        """Free the context; the weights go with the last who holds the model."""
        if self._pointer:
            lib.llama_free(self._pointer)
            self._pointer = None

    def _vector(self, number: int) -> Vectors:
        pointer = lib.llama_get_embeddings_seq(self._pointer, number)  # waits for the step
        if not pointer:
            raise GenerationFailed(f"llama.cpp has made no vector of a text: {log_tail()}")
        return np.ctypeslib.as_array(pointer, shape=(self._info.width,)).copy()


def longest_text(model: Model, output_bytes: int) -> int:
    """How many tokens a text may have so that what the library keeps of a step's outputs takes no more than that."""
    return output_bytes // (_OUTPUT_BYTES * (model.vocabulary + model.weights.width))


def _open(model: Model, step: int, threads: int) -> Any:
    parameters = lib.llama_context_default_params()
    parameters.embeddings = True
    parameters.n_seq_max = _MOST_TEXTS
    # A text is pooled in one piece, so a step is one pass; the pool of cells keeps the library from parting it.
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = step
    parameters.kv_unified = True
    # The fast attention rounds to 16 bits, in another way the more tokens there are, so that a vector would depend on
    # the texts beside its own: by 1e-4, where this way it is 1e-7.
    parameters.type_k = parameters.type_v = lib.GGML_TYPE_F32
    if step <= _PRECISE_TOKENS:
        parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.n_threads = parameters.n_threads_batch = threads
    parameters.no_perf = True
    pointer = lib.llama_init_from_model(model.pointer, parameters)
    if not pointer:
        raise failure(f"{model.path}: no context for steps of {step} tokens")
    return pointer
