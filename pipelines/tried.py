"""The process in which a model is tried: it loads it as a server would, as small as can be, and takes a step.

Run by `trial.py` alone. It says `passed`, or what is wrong as JSON; or what it loads ends it.
"""

import json
import os
import sys
import threading
from pathlib import Path

import numpy as np

from tenuto.errors import ModelLoadFailed, TenutoError
from tenuto.pipelines.adapters import Adapter
from tenuto.pipelines.backend import Row, Sampling
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import Source
from tenuto.pipelines.images import ImageEncoder
from tenuto.pipelines.loader import LoadSettings, load_source
from tenuto.pipelines.trial import Trial
from tenuto.sessions.items import Attachment, UserItem

# Enough tokens for the kernels that serve prompts, which are others than those that decode.
_PROMPT = 32
_PIXELS = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFUlEQVR42mNkYGRixgZYJCQkhpAEAJG7BBGtOuQBAAAAAElFTkSuQmCC"
"""An image of 8 x 8 pixels."""
_MEMORY = 4 << 30
"""Beside twice the files: the library may make a copy of the weights in another order."""


def main(trial: Trial, seconds: int, file_bytes: int) -> None:
    """Try a model, within so much processor time for each thread, and memory in proportion to its files."""
    settings = LoadSettings(
        slots=1,
        cells=256,
        batch_tokens=_PROMPT,
        threads=trial.threads,
        gpu_layers=trial.gpu_layers,
        cache_type=trial.cache_type,
        adapter=Adapter(Path(trial.adapter), trial.scale) if trial.adapter else None,
    )
    try:
        _bound(trial, seconds, _MEMORY + 2 * file_bytes)
        projector = Path(trial.projector) if trial.projector else None
        pipeline = load_source(Source("tried", trial.kind, Path(trial.path), projector=projector), settings)
        if isinstance(pipeline, EmbeddingPipeline):
            _embed(pipeline)
        else:
            _render(pipeline)
            if trial.kind == "gguf":  # MLX computes a token when it loads a model
                _step(pipeline)
            if pipeline.images is not None:
                _look(pipeline, pipeline.images)
    except TenutoError as error:
        _refuse(str(error))
    except MemoryError:
        _refuse(f"{trial.path} cannot be served: it takes more memory than its size allows")
    except Exception as error:  # whatever the files have caused
        _refuse(f"{trial.path} cannot be served: {type(error).__name__}: {error}")
    sys.stdout.write("passed")
    sys.stdout.flush()
    os._exit(0)  # how the libraries leave a process is another question


def _bound(trial: Trial, seconds: int, memory: int) -> None:
    try:
        import resource
    except ModuleNotFoundError:  # Windows: whoever waits has a clock
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds * trial.threads, seconds * trial.threads))
    # What is written to; a file's mapping does not count. The drivers of devices map much more than they use.
    if sys.platform == "linux" and trial.kind == "gguf" and not _is_on_device(trial):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _is_on_device(trial: Trial) -> bool:
    try:
        from tenuto.pipelines.llama_cpp.native import can_offload
    except ImportError:
        return False
    return trial.gpu_layers != 0 and can_offload()


def _render(pipeline: Pipeline) -> None:
    """Some hundred small conversations, as the first long session would have it."""
    pipeline.codec.looks_back  # noqa: B018 -- found out when it is read
    pipeline.codec.suffix([], [UserItem("x")], [], ended=False)


def _step(pipeline: Pipeline) -> None:
    backend, sampler = pipeline.backend, pipeline.backend.sampler(Sampling())
    [sampled] = backend.collect(backend.launch([Row(0, 0, [0] * _PROMPT, sampler)]))
    if not isinstance(sampled, int):
        raise ModelLoadFailed("the model's output is not finite")
    backend.collect(backend.launch([Row(0, _PROMPT, [sampled], sampler)]))


def _look(pipeline: Pipeline, encoder: ImageEncoder) -> None:
    """A small image, as far as to the numbers that a step would take."""
    [piece, *_] = pipeline.codec.pieces([UserItem("", (Attachment("image", "image/png", _PIXELS),))])
    ready = threading.Event()
    while (made := encoder.embeddings(piece, ready.set)) is None:
        ready.wait()  # the whole process has a bound
        ready.clear()
    if not np.isfinite(made.rows).all():
        raise ModelLoadFailed("what the projector makes of an image is not finite")


def _embed(pipeline: EmbeddingPipeline) -> None:
    """Texts of several lengths in one step, which are pooled each by itself."""
    room = pipeline.embedder.info.backend.context
    texts = [np.zeros(min(count, room), np.int32) for count in (_PROMPT // 2, _PROMPT // 4, 1)]
    if not np.isfinite(pipeline.embedder.embed(texts)).all():
        raise ModelLoadFailed("the model's output is not finite")
    pipeline.encoder.pair("x", pipeline.encoder.info.model)


def _refuse(why: str) -> None:
    sys.stdout.write(json.dumps({"error": why}))
    sys.exit(1)


if __name__ == "__main__":
    main(Trial(**json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))
