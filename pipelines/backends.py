"""The pipelines that need libraries of others, imported when they are needed. Importing this loads none of them."""

from types import ModuleType

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.finding import NO_MLX, has_mlx


def import_llama() -> ModuleType:
    """llama.cpp's.

    Raises:
        ModelLoadFailed: it is not installed, or cannot be loaded; the text says what to do.
    """
    try:
        from tenuto.pipelines import llama_cpp
    except ModuleNotFoundError as error:
        if error.name != "llama_cpp":
            raise
        raise ModelLoadFailed("GGUF models need llama-cpp-python: pip install 'tenuto[llama]'") from error
    except (OSError, RuntimeError) as error:
        raise ModelLoadFailed(f"llama-cpp-python is installed, but its library cannot be loaded: {error}") from error
    return llama_cpp


def import_mlx() -> ModuleType:
    """MLX's.

    Raises:
        ModelLoadFailed: it is not installed, or cannot be loaded; the text says what to do.
    """
    if not has_mlx():
        raise ModelLoadFailed(NO_MLX)
    try:
        from tenuto.pipelines import mlx
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("tenuto"):
            raise
        raise ModelLoadFailed(
            f"mlx is installed, but cannot be loaded: {error}; pip install 'tenuto[mlx]' brings all that it needs"
        ) from error
    return mlx
