"""Filling in the middle over HTTP: llama-server's /infill, and `suffix` in OpenAI's and Ollama's APIs."""

import json
from collections.abc import Iterator

import httpx
import ollama
import openai
import pytest

from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.slow

BEFORE, AFTER = "def one():\n    return ", "\n\ndef two():\n"
ORDER = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A tiny Llama that knows FIM, beside a script that does not."""
    from tests.pipelines.tiny_llama import tiny_llama

    folder = tmp_path_factory.mktemp("filling")
    fills = tiny_llama(folder / "fills.gguf")
    running = Server(folder, str(fills), ("--model", script(folder / "chats.json", cells=256))).start()
    yield running
    running.close()


@pytest.fixture
def http(filling: Server) -> Iterator[httpx.Client]:
    with filling.client() as client:
        yield client


def infill(http: httpx.Client, **more: object) -> httpx.Response:
    body = {"model": "fills", "input_prefix": BEFORE, "input_suffix": AFTER, "n_predict": 4, "temperature": 0, **more}
    return http.post("/infill", json=body)


def test_a_gap_is_filled_alike_in_every_dialect(filling: Server, http: httpx.Client) -> None:
    native = infill(http).json()
    assert native["prompt"].removeprefix("<s>") == ORDER
    assert native["tokens_predicted"] <= 4
    with openai.OpenAI(base_url=f"{filling.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        text = client.completions.create(model="fills", prompt=BEFORE, suffix=AFTER, max_tokens=4, temperature=0)
    assert text.choices[0].text == native["content"]
    assert text.usage is not None
    assert text.usage.prompt_tokens == native["tokens_evaluated"]
    options = {"num_predict": 4, "temperature": 0}
    said = ollama.Client(filling.url, timeout=HANGS_S).generate("fills", BEFORE, suffix=AFTER, options=options)
    assert said.response == native["content"]
    assert said.prompt_eval_count == native["tokens_evaluated"]


def test_a_filled_gap_is_streamed(http: httpx.Client) -> None:
    whole = infill(http).json()["content"]
    lines = infill(http, stream=True).text.splitlines()
    assert lines[0].startswith("data: ")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert "".join(event["content"] for event in events) == whole


def test_other_files_stand_before_the_gap_and_what_is_too_long_is_left_out(http: httpx.Client) -> None:
    extra = [{"text": "x = 1\n", "filename": "x.py"}]
    assert "--- snippet ---\n\nx = 1\n" in infill(http, input_extra=extra, prompt="4").json()["prompt"]
    long = infill(http, input_prefix="a" * 5000 + "b", input_suffix="c" + "d" * 5000).json()
    assert "b<|fim_suffix|>c" in long["prompt"]
    assert long["tokens_evaluated"] < 512


def test_a_model_without_the_tokens_says_so(filling: Server, http: httpx.Client) -> None:
    refused = infill(http, model="chats")
    assert refused.status_code == 400
    assert "cannot fill in the middle" in refused.json()["error"]["message"]
    with (
        openai.OpenAI(base_url=f"{filling.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client,
        pytest.raises(openai.BadRequestError, match="cannot fill in the middle"),
    ):
        client.completions.create(model="chats", prompt="a", suffix="b")
    with pytest.raises(ollama.ResponseError, match="cannot fill in the middle"):
        ollama.Client(filling.url, timeout=HANGS_S).generate("chats", "a", suffix="b")


def test_what_can_fill_gaps_is_told(filling: Server, http: httpx.Client) -> None:
    capable = {model["id"]: "infill" in model["capabilities"] for model in http.get("/v1/models").json()["data"]}
    assert capable == {"fills": True, "chats": False}
    shown = ollama.Client(filling.url, timeout=HANGS_S).show("fills")
    assert "insert" in (shown.capabilities or [])


@pytest.mark.parametrize(
    "body",
    [
        {"input_prefix": 1},
        {"input_suffix": None},
        {"input_extra": [{"filename": "x"}]},
        {"prompt": [1]},
    ],
)
def test_what_is_no_request_is_refused(http: httpx.Client, body: dict[str, object]) -> None:
    assert infill(http, **body).status_code == 400


def test_what_cannot_be_read_for_its_length_is_not_tokenised_at_all(http: httpx.Client) -> None:
    extra = [{"text": "x" * 20_000}, {"text": "y" * 20_000}, {"text": "last\n"}]
    told = infill(http, input_extra=extra).json()
    assert "last\n" in told["prompt"]
    assert "xx" not in told["prompt"]
    assert told["tokens_evaluated"] < 512
    refused = infill(http, prompt="c" * 100_000)
    assert refused.status_code == 400
    assert "at least" in refused.json()["error"]["message"]
