import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.finding import has_mlx, model_id
from tenuto.pipelines.loader import LoadSettings, find, fit, load
from tenuto.pipelines.model_store.hub_files import choose
from tenuto.pipelines.model_store.sources import RemoteFile
from tenuto.pipelines.sampling_defaults import GREEDY
from tests.patience import HANGS_S
from tests.pipelines.hub import Hub

GGUF = b"GGUF" + bytes(range(256)) * 20


def test_a_file_in_the_home_of_somebody_who_is_not_here_is_refused_in_words() -> None:
    for model in ("~nobody-here/a.gguf", "scripted:~nobody-here/a.toml"):
        with pytest.raises(ModelLoadFailed, match="there is no home folder for '~nobody-here'"):
            find(model)


def test_a_model_comes_from_the_hub_once(hub: Hub, settings: LoadSettings) -> None:
    hub.files = {"model-Q4_K_M.gguf": GGUF, "model-Q8_0.gguf": b"GGUF other", "README.md": b"hello"}
    assert find("hf:owner/model", settings).path.read_bytes() == GGUF
    assert find("hf:owner/model", settings).path.read_bytes() == GGUF
    assert find("hf:owner/model:q8_0", settings).path.read_bytes() == b"GGUF other"
    assert [path for path, _ in hub.requests if path.startswith("/files/")] == [
        "/files/model-Q4_K_M.gguf",
        "/files/model-Q8_0.gguf",
    ]


@pytest.mark.parametrize("honours_ranges", [True, False])
def test_a_download_that_broke_off_is_resumed(hub: Hub, settings: LoadSettings, honours_ranges: bool) -> None:
    hub.files, hub.break_after = {"model-Q8_0.gguf": GGUF}, 1000
    with pytest.raises(ModelLoadFailed, match="broke off"):
        find("hf:owner/model", settings)
    hub.break_after, hub.honours_ranges = None, honours_ranges
    assert find("hf:owner/model", settings).path.read_bytes() == GGUF
    assert ("/files/model-Q8_0.gguf", "bytes=1000-") in hub.requests


def test_a_file_with_another_digest_is_thrown_away(hub: Hub, settings: LoadSettings) -> None:
    hub.files, hub.listed_sha = {"model-Q8_0.gguf": GGUF}, {"model-Q8_0.gguf": "0" * 64}
    with pytest.raises(ModelLoadFailed, match="SHA-256"):
        find("hf:owner/model", settings)
    assert settings.downloads is not None
    assert not [path for path in settings.downloads.rglob("*") if path.suffix in (".gguf", ".incomplete")]
    hub.listed_sha = {}
    assert find("hf:owner/model", settings).path.read_bytes() == GGUF


def test_the_token_is_shown_to_the_hub_and_not_to_the_servers_that_it_sends_us_to(
    hub: Hub, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files, hub.token = {"model-Q8_0.gguf": GGUF}, "hf_secret"
    with pytest.raises(ModelLoadFailed, match=r"it needs HF_TOKEN to be set \(status 401\)"):
        find("hf:owner/model", settings)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert find("hf:owner/model", settings).path.read_bytes() == GGUF
    shown = {path.partition("/resolve/")[0]: token for path, token in hub.tokens if path.startswith("/files/") or token}
    assert shown == {
        "/api/models/owner/model": "Bearer hf_secret",
        "/owner/model": "Bearer hf_secret",
        "/files/model-Q8_0.gguf": None,
    }


def test_nothing_is_left_beside_a_model_that_has_come(hub: Hub, settings: LoadSettings) -> None:
    hub.files = {"model-Q8_0.gguf": GGUF}
    place = find("hf:owner/model", settings).path.parent
    assert [path.name for path in place.rglob("*")] == ["model-Q8_0.gguf"]


def test_what_was_downloaded_serves_where_the_user_wants_no_network(hub: Hub, settings: LoadSettings) -> None:
    hub.files = {"model-Q8_0.gguf": GGUF}
    found = find("hf:owner/model", settings)
    asked = len(hub.requests)
    code = "import sys; from pathlib import Path; from tenuto.pipelines.loader import LoadSettings, find;"
    code += "print(find('hf:owner/model', LoadSettings(downloads=Path(sys.argv[1]))).path)"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}  # which the library reads when it is imported
    ran = subprocess.run(
        [sys.executable, "-c", code, str(settings.downloads)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == str(found.path)
    assert len(hub.requests) == asked


def test_what_was_downloaded_serves_where_the_hub_cannot_be_reached(
    hub: Hub, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files = {"model-Q8_0.gguf": GGUF}
    found = find("hf:owner/model", settings)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert find("hf:owner/model", settings) == found
    with pytest.raises(ModelLoadFailed, match="cannot be listed"):
        find("hf:owner/another", settings)


def test_a_model_that_the_hub_does_not_have_is_named(hub: Hub, settings: LoadSettings) -> None:
    with pytest.raises(ModelLoadFailed, match=r"hf:owner/none: there is no such model"):
        find("hf:owner/none", settings)
    with pytest.raises(ModelLoadFailed, match="OWNER/REPO"):
        find("hf:../../etc", settings)


def remote(*names: str) -> list[RemoteFile]:
    return [RemoteFile(name, 1) for name in names]


def test_the_quantisation_is_chosen_by_name_or_by_preference() -> None:
    many = remote(
        "m-Q4_K_S.gguf", "m-Q4_K_M.gguf", "m.Q8_0.gguf", "mmproj-m-F16.gguf", "BF16/m-BF16-00002-of-00002.gguf"
    )
    many += remote("BF16/m-BF16-00001-of-00002.gguf")
    assert choose(many, None, "o/m") == remote("m-Q4_K_M.gguf")
    assert choose(many, "Q4_K_S", "o/m") == remote("m-Q4_K_S.gguf")
    assert choose(many[2:], None, "o/m") == remote("m.Q8_0.gguf")
    assert choose(many, "bf16", "o/m") == remote("BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf")
    assert choose(remote("standin.gguf"), None, "o/m") == remote("standin.gguf")
    with pytest.raises(ModelLoadFailed, match="there are: BF16, Q4_K_S"):
        choose([many[0], many[4]], None, "o/m")
    with pytest.raises(ModelLoadFailed, match="no quantisation Q4_K"):
        choose(many, "Q4_K", "o/m")
    with pytest.raises(ModelLoadFailed, match="no GGUF file"):
        choose(remote("README.md", "mmproj-m-F16.gguf"), None, "o/m")


def test_a_path_that_leads_out_of_the_folder_is_not_taken(hub: Hub, settings: LoadSettings) -> None:
    hub.files = {"../../m-Q8_0.gguf": GGUF}
    with pytest.raises(ModelLoadFailed, match="no GGUF file"):
        find("hf:owner/model", settings)


def test_the_embedded_model_loads_and_is_called_embedded(settings: LoadSettings, embedded_model: str) -> None:
    pipeline = load(embedded_model, settings)
    assert pipeline.codec.info.model == "embedded"
    assert (pipeline.backend.info.slots, pipeline.backend.info.cells) == (1, 256)
    assert pipeline.defaults == GREEDY
    pipeline.backend.close()


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("darwin", "x86_64"), ("linux", "aarch64")])
def test_the_embedded_model_runs_on_mlx_where_that_is_the_machines_own(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", system)
        elsewhere.setattr(platform, "machine", lambda: machine)
        found = [find(name).kind for name in ("embedded", "embedded:gguf", "embedded:mlx")]
    at_home = "mlx" if (system, machine) == ("darwin", "arm64") and has_mlx() else "gguf"
    assert found == [at_home, "gguf", "mlx"]


def test_a_script_loads(tmp_path: Path, settings: LoadSettings) -> None:
    script = tmp_path / "demo.toml"
    script.write_text("slots = 2")
    pipeline = load(f"scripted:{script}", settings)
    assert (pipeline.codec.info.model, pipeline.backend.info.slots) == ("demo", 2)


def test_public_ids() -> None:
    names = ["embedded", "/models/tiny-q8.gguf", "scripted:/x/demo.toml", "hf:owner/repo", "hf:owner/repo:Q8_0"]
    assert [model_id(name) for name in names] == ["embedded", "tiny-q8", "demo", "owner/repo", "owner/repo:Q8_0"]
    names = ["embedded:gguf", "embedded:mlx", "/models/Qwen3-0.6B-4bit", "mlx/Qwen3-0.6B-4bit/"]
    assert [model_id(name) for name in names] == ["embedded"] * 2 + ["Qwen3-0.6B-4bit"] * 2


def test_what_cannot_be_loaded_is_told_in_one_sentence(tmp_path: Path, settings: LoadSettings) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "none").mkdir()
    (tmp_path / "wrong.toml").write_text("[[rules]]\nuser_matches = '('")
    (tmp_path / "strange.json").write_text('{"rules": [{"answer": "hello"}]}')
    for model, words in {
        "missing.gguf": "there is no model file",
        "text.gguf": "is not a GGUF file",
        "model.safetensors": "is one file of an MLX model; give its folder, ",
        "none": r"a folder without a model: it has no config\.json; give a GGUF file or the folder of an MLX model",
        "scripted:missing.toml": "cannot be read",
        "scripted:wrong.toml": r"wrong at rules\.0\.user_matches: .*not a regular expression",
        "scripted:strange.json": r"wrong at rules\.0\.answer",
    }.items():
        kind, _, name = model.rpartition(":")
        with pytest.raises(ModelLoadFailed, match=words):
            load(f"{kind}:{tmp_path / name}" if kind else str(tmp_path / name), settings)


def test_a_file_that_was_cut_off_is_told_from_one_that_is_missing(tmp_path: Path, settings: LoadSettings) -> None:
    pytest.importorskip("llama_cpp")
    whole = find("embedded:gguf").path.read_bytes()
    for size in (40, len(whole) // 2):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(ModelLoadFailed, match=r"cut\.gguf is damaged: it ends "):
            load(str(tmp_path / "cut.gguf"), settings)


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, check=True
    ).stdout


def test_importing_the_loader_loads_no_backend() -> None:
    backends = "{'llama_cpp', 'mlx', 'mlx_lm', 'tokenizers', 'transformers'}"
    for module in ("tenuto", "tenuto.pipelines.loader"):
        assert run(f"import sys, {module}; print({backends} & set(sys.modules))") == "set()\n"


@pytest.mark.parametrize(
    ("form", "missing", "told"),
    [
        ("gguf", "llama_cpp", "GGUF models need llama-cpp-python: pip install 'tenuto[llama]'"),
        ("mlx", "mlx", "MLX models need mlx and mlx-lm: pip install 'tenuto[mlx]'"),
        ("mlx", "mlx_lm", "MLX models need mlx and mlx-lm: pip install 'tenuto[mlx]'"),
    ],
)
def test_without_the_extra_the_error_says_what_to_install(form: str, missing: str, told: str) -> None:
    code = f"""
import sys
sys.modules["{missing}"] = None
from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.loader import load
try:
    load("embedded:{form}")
except ModelLoadFailed as error:
    print(error)
"""
    assert run(code) == f"{told}\n"


@given(
    training=st.integers(0, 1 << 17),
    token_bytes=st.integers(1, 1 << 18),
    cache=st.integers(1, 1 << 36),
    slots=st.none() | st.integers(1, 64),
)
def test_what_is_fitted_keeps_within_the_cache(training: int, token_bytes: int, cache: int, slots: int | None) -> None:
    settings = LoadSettings(slots=slots, cache_bytes=cache)
    chosen, cells = fit(training, token_bytes, settings)
    assert chosen == slots or 1 <= chosen <= 16
    assert cells <= settings.most_cells
    assert chosen * cells * token_bytes <= cache or (cells == 256 and chosen in (1, slots))


def test_what_is_set_is_not_changed() -> None:
    assert fit(2048, 1000, LoadSettings(slots=3, cells=1000, cache_bytes=1)) == (3, 1000)
    assert fit(2048, 1000, LoadSettings(cells=512, cache_bytes=3_000_000)) == (5, 512)
    assert fit(1 << 17, 1000, LoadSettings(cache_bytes=1 << 34)) == (16, 8192)
