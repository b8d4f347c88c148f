"""Models in GGUF files, run by llama.cpp through its C API. Importing this needs the extra `tenuto[llama]`."""

from tenuto.pipelines.llama_cpp import openmp  # the first of all that load the library
from tenuto.pipelines.llama_cpp.backend import LlamaBackend
from tenuto.pipelines.llama_cpp.choosing import LlamaPending
from tenuto.pipelines.llama_cpp.devices import devices
from tenuto.pipelines.llama_cpp.embedder import LlamaEmbedder, longest_text
from tenuto.pipelines.llama_cpp.native import Model, Placement, can_offload, placement_of, prefers_plain, version
from tenuto.pipelines.llama_cpp.projector import Projector
from tenuto.pipelines.llama_cpp.settings import LlamaSettings
from tenuto.pipelines.llama_cpp.text_encoder import LlamaTextEncoder
from tenuto.pipelines.llama_cpp.tokenizer import LlamaTokenizer

__all__ = [
    "LlamaBackend",
    "LlamaEmbedder",
    "LlamaPending",
    "LlamaSettings",
    "LlamaTextEncoder",
    "LlamaTokenizer",
    "Model",
    "Placement",
    "Projector",
    "can_offload",
    "devices",
    "longest_text",
    "openmp",
    "placement_of",
    "prefers_plain",
    "version",
]
