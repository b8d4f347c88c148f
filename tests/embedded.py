"""The embedded model in each of its forms. No test that takes one may know which pipeline it talks to."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tenuto.pipelines
from tests.patience import HANGS_S

FOLDER = Path(tenuto.pipelines.__file__).parent / "embedded"
"""Where the forms lie."""


def _form(name: str, package: str, extra: str) -> "pytest.ParameterSet":
    missing = importlib.util.find_spec(package) is None
    reason = f"{package} is not installed: pip install 'tenuto[{extra}]'"
    return pytest.param(f"embedded:{name}", marks=pytest.mark.skipif(missing, reason=reason), id=name)


FORMS = [_form("gguf", "llama_cpp", "llama"), _form("mlx", "mlx_lm", "mlx")]
"""What `--model` takes for each form; parameters for pytest."""


def with_template(model: str, template: str, folder: Path) -> str:
    """A copy of a form that has another chat template: what `--model` takes for it."""
    if model == "embedded:mlx":
        copy = folder / "templated"
        shutil.copytree(mlx_folder(), copy)
        (copy / "chat_template.jinja").write_text(template)
    else:
        copy = folder / "templated.gguf"
        command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--chat-template", template]
        subprocess.run([*command, str(gguf_file()), str(copy)], check=True, capture_output=True, timeout=HANGS_S)
    return str(copy)


def gguf_file() -> Path:
    """The GGUF form that is served."""
    return FOLDER / "tenuto-embedded.gguf"


def mlx_folder() -> Path:
    """The MLX form."""
    return FOLDER / "mlx"
