"""Models in folders of safetensors, run by MLX. Importing this needs the extra `tenuto[mlx]`."""

from tenuto.pipelines.mlx.tokenizer import MlxTokenizer

__all__ = ["MlxTokenizer"]
