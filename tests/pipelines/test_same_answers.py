"""The same weights give the same greedy tokens on both pipelines, calls of tools among them."""

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="needs tenuto[llama]")
pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")

from tenuto.sessions.items import ToolSpec, UserItem
from tenuto.tools.builtin import Calculator, Clock
from tests.embedded import gguf_file, mlx_folder
from tests.pipelines.full_weights import full_gguf
from tests.pipelines.greedy import Answer, greedy, loaded, parting

QUESTIONS = Path(__file__).parents[2] / "bench" / "questions" / "questions.toml"
TOKENS = 48
PARTED = 1
"""So many prompts may part at equal logits."""


@pytest.mark.slow
@pytest.mark.parametrize("questions", [10, pytest.param(50, marks=pytest.mark.thorough)])
async def test_the_same_weights_give_the_same_tokens(tmp_path: Path, questions: int) -> None:
    tools = [
        ToolSpec(f"{server.name}__{tool.spec.name}", tool.spec.description, tool.spec.parameters)
        for server in (Calculator(), Clock())
        for tool in await server.list()
    ]
    asked = [entry["text"] for entry in tomllib.loads(QUESTIONS.read_text())["question"]][::2][:questions]
    answers: list[list[Answer]] = []
    for model in (str(full_gguf(gguf_file(), mlx_folder(), tmp_path / "full.gguf")), str(mlx_folder())):
        with loaded(model) as pipeline:
            codec = pipeline.codec
            rendered = [codec.suffix([], [UserItem(text)], tools, ended=True) for text in asked]
            prompts = [[token for item in each.items for token in item] + list(each.opening) for each in rendered]
            answers.append([greedy(pipeline.backend, prompt, codec.info.stop_tokens, TOKENS) for prompt in prompts])
    assert len(asked) == questions
    parted = [(text, at) for text, *pair in zip(asked, *answers, strict=True) if (at := parting(*pair)) is not None]
    print(f"parted at equal logits: {parted}")
    assert len(parted) <= PARTED
