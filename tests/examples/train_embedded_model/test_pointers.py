"""Pointers: where a call's name and values stood before, and heads that are told to look there."""

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("faker")
pytest.importorskip("tokenizers")
pytest.importorskip("torch", reason="needs tenuto[train]: make model-test")
import torch
from train_embedded_model.builtins import SPECS
from train_embedded_model.conversations import Conversation, Message, conversation
from train_embedded_model.network import Network, Shape
from train_embedded_model.pointers import Finder
from train_embedded_model.tokens import Encoder

BEGIN = Path(__file__).parents[3] / "examples" / "train_embedded_model" / "begin"
ENCODER = Encoder(BEGIN / "tokenizer.json")
FINDER = Finder(ENCODER)


def text_at(ids: list[int], place: int, count: int) -> str:
    found: str = ENCODER.tokenizer.decode(ids[place : place + count], skip_special_tokens=False)
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_at_every_source_stands_the_token_that_comes_next(seed: int) -> None:
    ids, trained = ENCODER.encode(conversation(random.Random(seed)))
    for place, sources in FINDER.pointers(ids, trained):
        assert trained[place + 1]
        assert sources
        if not trained[place]:  # the end of a request, which looks at what will be called
            continue
        assert all(ids[source] == ids[place + 1] and source <= place for source in sources)


def test_a_name_is_pointed_at_in_the_list_and_a_value_in_the_request() -> None:
    asked = Message("user", "Please remember that the locker is 4711-zebra under gym")
    call = Message("assistant", calls=(("notes__put", {"key": "gym", "text": "4711-zebra"}),))
    ids, trained = ENCODER.encode(Conversation("", tuple(SPECS.values()), (asked, call)))
    begins = [place for place in range(len(ids)) if text_at(ids, place, 1) == "<tools>"]
    found = {text_at(ids, place + 1, 2): sources for place, sources in FINDER.pointers(ids, trained) if trained[place]}
    names = [sources for text, sources in found.items() if text.startswith("no")]
    assert names
    assert all(source > begins[1] for sources in names for source in sources)
    assert [text_at(ids, source, 4) for source in found["47"]] == ["4711"]
    assert all(begins[0] < source < begins[1] for source in found["47"])


def test_the_end_of_a_request_looks_at_the_names_of_the_tools_that_it_asks_for() -> None:
    put = ("notes__put", {"key": "gym", "text": "locker 12"})
    messages = (
        Message("user", "Hello"),
        Message("assistant", "Hello! What can I do?"),
        Message("user", "Under gym, write locker 12. And what is the time?"),
        Message("assistant", calls=(put, ("clock__now", {"timezone": "UTC"}))),
        Message("tool", "saved"),
        Message("tool", "10:00"),
        Message("assistant", "I saved the note gym."),
    )
    ids, trained = ENCODER.encode(Conversation("", tuple(SPECS.values()), messages))
    ends = [sources for place, sources in FINDER.pointers(ids, trained) if not trained[place]]
    lines = [[text_at(ids, source, 12).split("\n")[0] for source in sources] for sources in ends]
    assert lines == [["</tools><|im_end|>"], ["notes__put", "clock__now"]]


def test_a_head_that_is_told_where_to_look_looks_there() -> None:
    torch.manual_seed(1)
    network = Network(Shape(vocabulary=64, width=32, layers=2, heads=2, kv_heads=1, head_width=16, hidden=32))
    ids = torch.stack([torch.randperm(64)[:20] for _ in range(64)])
    # The last token asks for the place of its like.
    sources = torch.randint(0, 19, (64, 1))
    ids[:, 19] = ids.gather(1, sources)[:, 0]
    places = torch.full((64, 1), 19)

    def missed() -> torch.Tensor:
        inputs: list[torch.Tensor] = []
        network(ids, inputs)
        looks = network.looks(inputs, places)
        assert all(torch.allclose(look.exp().sum(-1), torch.ones(64, 1), atol=1e-4) for look in looks)
        return -torch.stack([look.gather(2, sources[..., None]) for look in looks]).mean()

    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    before = float(missed().detach())
    for _ in range(150):
        optimizer.zero_grad()
        torch.autograd.backward(missed())
        optimizer.step()
    assert before > 2.0
    assert float(missed().detach()) < 0.3
