"""The tiny models, each written and loaded once. Without mlx-lm these tests are skipped."""

import pytest

pytest.importorskip("mlx_lm", reason="needs the extra tenuto[mlx]")

from tenuto.pipelines.mlx import Model
from tests.pipelines.mlx.tiny import CONFIGS, write_model


@pytest.fixture(scope="session", params=sorted(CONFIGS))
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of cache."""
    return str(request.param)


@pytest.fixture(scope="session")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of each kind."""
    return Model(write_model(tmp_path_factory.mktemp("model"), kind))
