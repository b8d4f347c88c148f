"""The embedded model in each of its forms. No test that takes one may know which pipeline it talks to."""

import importlib.util
from pathlib import Path

import pytest

import tenuto.pipelines

FOLDER = Path(tenuto.pipelines.__file__).parent / "embedded"
"""Where the forms lie."""


def _form(name: str, package: str, extra: str) -> "pytest.ParameterSet":
    missing = importlib.util.find_spec(package) is None
    reason = f"{package} is not installed: pip install 'tenuto[{extra}]'"
    return pytest.param(f"embedded:{name}", marks=pytest.mark.skipif(missing, reason=reason), id=name)


FORMS = [_form("gguf", "llama_cpp", "llama"), _form("mlx", "mlx_lm", "mlx")]
"""What `--model` takes for each form; parameters for pytest."""


def gguf_file() -> Path:
    """The GGUF form that is served."""
    return min(FOLDER.glob("*-q8_0.gguf"))


def mlx_folder() -> Path:
    """The MLX form."""
    return FOLDER / "mlx"
