"""A projector is named, or lies beside its model; what comes of one that is wrong."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.loader import LoadSettings, load
from tests.pipelines.tiny_vision import Files, tiny_vision

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return tiny_vision(tmp_path, "square")


def test_one_that_lies_beside_its_model_is_tried_with_it(files: Files, settings: LoadSettings) -> None:
    pipeline = load(str(files.model), settings)
    assert pipeline.codec.info.modalities == {"text", "image"}
    assert pipeline.trial.startswith("passed")
    pipeline.backend.close()
    assert settings.verdicts is not None
    assert len(list(settings.verdicts.iterdir())) == 1


def test_a_wrong_one_that_was_named_is_refused_and_one_beside_is_left_out(
    files: Files, settings: LoadSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files.projector.write_bytes(files.projector.read_bytes()[:2000])
    with pytest.raises(ModelLoadFailed, match="cannot be loaded as the projector"):
        load(str(files.model), replace(settings, projector=files.projector))
    with caplog.at_level(logging.WARNING):
        pipeline = load(str(files.model), settings)
    assert pipeline.codec.info.modalities == {"text"}
    pipeline.backend.close()
    assert "reads no images, although" in caplog.text
    with pytest.raises(ModelLoadFailed, match="there is no projector"):
        load(str(files.model), replace(settings, projector=tmp_path / "nowhere.gguf"))


def test_a_model_that_is_no_gguf_file_takes_none(files: Files, settings: LoadSettings, tmp_path: Path) -> None:
    folder = tmp_path / "mlx"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({}))
    with pytest.raises(ModelLoadFailed, match="is no GGUF file, and only those have a projector"):
        load(str(folder), replace(settings, projector=files.projector))
