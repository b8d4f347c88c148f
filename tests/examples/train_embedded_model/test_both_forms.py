"""Both forms of a trained model are one model: the same template, the same tokens, the same answers."""

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("faker")
pytest.importorskip("tokenizers")
pytest.importorskip("torch", reason="needs tenuto[train]: make model-test")
pytest.importorskip("llama_cpp", reason="needs tenuto[llama]")
pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")
from train_embedded_model.conversations import conversation
from train_embedded_model.export import export
from train_embedded_model.layout import TEMPLATE, pieces
from train_embedded_model.tokens import Encoder

from tenuto.pipelines.llama_cpp import Model
from tenuto.pipelines.mlx import MlxTokenizer
from tests.pipelines.full_weights import full_gguf
from tests.pipelines.greedy import Answer, greedy, loaded, parting

BEGIN = Path(__file__).parents[3] / "examples" / "train_embedded_model" / "begin"
TURNS, TOKENS, LONGEST = 25, 64, 448
PARTED = 1
"""So many turns may part, at equal logits."""


@dataclass(frozen=True)
class Turn:
    """What stands before a turn of the assistant, and how many tokens it should have."""

    prompt: list[int]
    length: int


def held_out_turns(encoder: Encoder) -> list[Turn]:
    """One turn of each of so many conversations about tools, phrases and values that training never saw."""
    rng = random.Random("the same answers from both forms")
    turns: list[Turn] = []
    while len(turns) < TURNS:
        ids: list[int] = []
        found: list[Turn] = []
        for part in pieces(conversation(rng, test=True, turns=rng.choice((1, 2)), most_tools=4)):
            tokens = encoder.tokens(part.text)
            if part.trained and len(ids) + len(tokens) < LONGEST:
                found.append(Turn(list(ids), min(len(tokens), TOKENS)))
            ids += tokens
        if found:
            turns.append(rng.choice(found))
    return turns


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights to begin with, as they would be served."""
    folder = tmp_path_factory.mktemp("forms")
    export(BEGIN / "weights.pt", folder)
    return folder


def test_both_forms_have_the_template_that_was_trained_on(exported: Path) -> None:
    mlx = exported / "mlx"
    entries = json.loads((mlx / "config.json").read_text())["vocab_size"]
    assert Model(exported / "tenuto-embedded.gguf", vocabulary_only=True).chat_template == TEMPLATE
    assert MlxTokenizer(mlx, entries).chat_template == TEMPLATE


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_both_forms_give_the_same_tokens_on_turns_that_are_held_out(exported: Path, tmp_path: Path) -> None:
    gguf, mlx = exported / "tenuto-embedded.gguf", exported / "mlx"
    turns = held_out_turns(Encoder(mlx / "tokenizer.json"))
    answers: list[list[Answer]] = []
    for model in (full_gguf(gguf, mlx, tmp_path / "full.gguf"), mlx):
        with loaded(str(model), cells=LONGEST + TOKENS) as pipeline:
            stops = pipeline.codec.info.stop_tokens
            answers.append([greedy(pipeline.backend, turn.prompt, stops, turn.length) for turn in turns])
    parted = [place for place, pair in enumerate(zip(*answers, strict=True)) if parting(*pair) is not None]
    print(f"parted at equal logits: {parted}")
    assert len(parted) <= PARTED
