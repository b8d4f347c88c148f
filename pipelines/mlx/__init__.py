"""Folders of MLX models, run by mlx-lm's model and cache classes. Importing this needs the extra `tenuto[mlx]`."""

from tenuto.pipelines.mlx.backend import MlxBackend, MlxSettings
from tenuto.pipelines.mlx.device import leave_thread, runs_on
from tenuto.pipelines.mlx.folder import read_folder, require_tokenizer
from tenuto.pipelines.mlx.model import Model
from tenuto.pipelines.mlx.step import MlxPending
from tenuto.pipelines.mlx.tokenizer import MlxTokenizer

__all__ = [
    "MlxBackend",
    "MlxPending",
    "MlxSettings",
    "MlxTokenizer",
    "Model",
    "leave_thread",
    "read_folder",
    "require_tokenizer",
    "runs_on",
]
