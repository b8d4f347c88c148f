"""A bad model file is an error with its reason, and neither the end of the process nor a wait for ever."""

import json
import os
import random
import struct
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines import trial
from tenuto.pipelines.loader import LoadSettings, load
from tests.e2e.forked import program
from tests.pipelines.crafted import Crafted, written

pytestmark = pytest.mark.slow
CRAFTED = Crafted()
LAYERS, EPSILON = "llama.block_count", "llama.attention.layer_norm_rms_epsilon"
TALK = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize("layers", [0, 513, 2**31, 2**32 - 1])
def test_a_file_with_an_impossible_number_of_layers_is_an_error(
    tmp_path: Path, settings: LoadSettings, layers: int
) -> None:
    path = written(tmp_path / "bad.gguf", CRAFTED.number(LAYERS, struct.pack("<I", layers)))
    with pytest.raises(ModelLoadFailed, match=r"bad\.gguf cannot be served: .*SIGABRT.*GGML_ASSERT.*n_layer"):
        load(path, settings)


def test_a_file_with_an_epsilon_that_is_no_number_is_an_error(tmp_path: Path, settings: LoadSettings) -> None:
    path = written(tmp_path / "nan.gguf", CRAFTED.number(EPSILON, struct.pack("<f", float("nan"))))
    with pytest.raises(ModelLoadFailed, match=r"nan\.gguf cannot be served: .*GGML_ASSERT.*eps"):
        load(path, settings)


@pytest.mark.parametrize("loops", ["{{ 'x'.center(10**9) }}", "{% for a in range(9999) %}{% for b in range(9999) %}"])
def test_a_file_whose_template_does_not_come_to_an_end_is_an_error(
    tmp_path: Path, settings: LoadSettings, loops: str
) -> None:
    path = written(tmp_path / "loops.gguf", CRAFTED.template(loops + "{% endfor %}" * loops.count("for") + TALK))
    with pytest.raises(ModelLoadFailed, match="the model's chat template"):
        load(path, settings)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_pipe_is_no_model(tmp_path: Path, settings: LoadSettings) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelLoadFailed, match="neither a file nor a folder"):
        load(str(tmp_path / "pipe.gguf"), settings)


def test_no_file_ends_the_process_that_asks_for_it(tmp_path: Path, settings: LoadSettings) -> None:
    """Bytes of the metadata are changed by chance. Some of these files load, and all others are errors."""
    for seed in range(10):
        chance = random.Random(seed)
        content = bytearray(CRAFTED.whole)
        for _ in range(chance.randint(1, 4)):
            # The first kilobytes hold the counts and the model's numbers, the rest nearly all of the vocabulary.
            content[chance.randrange(4, 2000 if chance.random() < 0.7 else CRAFTED.header)] = chance.randrange(256)
        with suppress(ModelLoadFailed):
            load(written(tmp_path / f"{seed}.gguf", bytes(content)), settings).backend.close()


def test_a_model_that_has_passed_is_not_tried_again_until_it_changes(
    tmp_path: Path, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "good.gguf", CRAFTED.whole)
    first = load(path, settings)
    first.backend.close()
    assert first.trial.startswith("passed in ")
    assert settings.verdicts is not None
    (kept,) = settings.verdicts.iterdir()
    assert json.loads(kept.read_text())["path"] == path

    def tried(*_: object) -> None:
        raise ModelLoadFailed("it was tried again")

    monkeypatch.setattr(trial, "_try", tried)
    again = load(path, settings)
    again.backend.close()
    assert again.trial.startswith("passed earlier")
    for change in (lambda: written(Path(path), CRAFTED.template(TALK)), lambda: os.utime(path, (1, 1))):
        change()
        with pytest.raises(ModelLoadFailed, match="it was tried again"):
            load(path, settings)
    with pytest.raises(ModelLoadFailed, match="it was tried again"):
        load(path, replace(settings, cache_type="q8_0"))


def test_the_embedded_model_needs_no_trial(settings: LoadSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_try", None)
    pipeline = load("embedded:gguf", settings)
    pipeline.backend.close()
    assert pipeline.trial == "not needed"


def test_a_model_that_does_not_come_to_an_end_is_given_up(
    tmp_path: Path, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_SECONDS", 0.0)
    path = written(tmp_path / "slow.gguf", CRAFTED.whole)
    with pytest.raises(ModelLoadFailed, match=r"slow\.gguf cannot be served: it was not loaded within \d+ s"):
        load(path, settings)


def test_a_server_with_a_bad_model_says_why_it_does_not_start(tmp_path: Path) -> None:
    path = written(tmp_path / "bad.gguf", CRAFTED.number(LAYERS, struct.pack("<I", 0)))
    done = subprocess.run(
        program("serve", "--port", "0", "--data-dir", "data", "--model", path),
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "GGML_ASSERT" in done.stderr
    assert done.stderr.count("\n") == 1
