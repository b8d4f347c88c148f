"""A step of the native library, with as many threads as it is worth. Engine thread only."""

import time
from typing import Any

import llama_cpp as lib

from tenuto.pipelines.llama_cpp.native import Model
from tenuto.pipelines.llama_cpp.team import Teams


def timed_decode(pointer: Any, batch: Any, teams: Teams, model: Model) -> int:
    """Step with as many threads as a native batch of its size is worth, and let the teams learn of it.

    Of a model on an accelerator they learn nothing: a thread that waits for one tells nothing of processors.
    """
    tokens = int(batch.n_tokens)
    threads = teams.threads(tokens)
    if threads != lib.llama_n_threads(pointer):
        lib.llama_set_n_threads(pointer, threads, threads)
    began, worked = time.perf_counter(), time.thread_time()
    status = int(lib.llama_decode(pointer, batch))
    took_s, working_s = time.perf_counter() - began, time.thread_time() - worked
    if not model.is_offloaded:
        teams.stepped(tokens, took_s, working_s)
    return status
