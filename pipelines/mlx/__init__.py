"""Folders of MLX models, run by mlx-lm's model and cache classes. Importing this needs the extra `tenuto[mlx]`."""

from tenuto.pipelines.mlx.backend import MlxBackend, MlxPending, MlxSettings
from tenuto.pipelines.mlx.model import Model

__all__ = ["MlxBackend", "MlxPending", "MlxSettings", "Model"]
