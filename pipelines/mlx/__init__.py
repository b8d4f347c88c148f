"""Models in folders of safetensors, run by MLX. Importing this needs the extra `tenuto[mlx]`."""

from tenuto.pipelines.mlx.folder import require_whole
from tenuto.pipelines.mlx.tokenizer import MlxTokenizer

__all__ = ["MlxTokenizer", "require_whole"]
