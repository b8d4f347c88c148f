"""What a model goes on from to fill a gap: the order of llama-server, and what stays of what is too long."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.infill import Gap, InfillTokens, Snippet, infill_prompt, infill_tokens

BARE = InfillTokens(prefix=1001, suffix=1002, middle=1003)
WHOLE = InfillTokens(1001, 1002, 1003, repository=1004, file=1005)


def tokens(text: str) -> list[int]:
    return list(text.encode())


def test_the_order_is_that_of_llama_server() -> None:
    """tools/server/server-common.cpp, format_prompt_infill."""
    assert infill_prompt(BARE, Gap("ab", "cd"), tokens, bos=7, room=99) == [
        *(7, 1001, *tokens("ab"), 1002, *tokens("cd"), 1003)
    ]
    gap = Gap("ab", "cd", "p", [Snippet("one", "a.py"), Snippet("two")])
    assert infill_prompt(WHOLE, gap, tokens, bos=7, room=99) == [
        *(1004, *tokens("myproject\n")),
        *(1005, *tokens("a.py\n"), *tokens("one")),
        *(1005, *tokens("tmp\n"), *tokens("two")),
        *(1005, *tokens("filename\n")),
        *(7, 1001, *tokens("abp"), 1002, *tokens("cd"), 1003),
    ]
    between = infill_prompt(BARE, Gap("a", "b", snippets=[Snippet("one")]), tokens, bos=None, room=99)
    assert between == [*tokens("\n\n--- snippet ---\n\none"), 1001, *tokens("a"), 1002, *tokens("b"), 1003]


@given(before=st.text("ab", max_size=40), after=st.text("cd", max_size=40), room=st.integers(8, 60))
def test_what_stands_next_to_the_gap_stays(before: str, after: str, room: int) -> None:
    gap = Gap(before, after, snippets=[Snippet("other " * 5)])
    prompt = infill_prompt(WHOLE, gap, tokens, bos=None, room=room)
    assert len(prompt) <= room
    kept = prompt[prompt.index(1001) :]
    middle = kept.index(1002)
    assert tokens(before)[len(before) - len(kept[1:middle]) :] == kept[1:middle]
    assert tokens(after)[: len(kept[middle + 1 : -1])] == kept[middle + 1 : -1]
    if len(before) + len(after) + 4 <= room:
        assert len(kept) == len(before) + len(after) + 3, "nothing is left out where all has room"


def test_families_are_known_by_the_texts_of_their_tokens() -> None:
    assert infill_tokens({"<fim_prefix>": 1, "<fim_suffix>": 2, "<fim_middle>": 3}) == InfillTokens(1, 2, 3)
    qwen = {"<|fim_prefix|>": 1, "<|fim_suffix|>": 2, "<|fim_middle|>": 3, "<|repo_name|>": 4, "<|file_sep|>": 5}
    assert infill_tokens(qwen) == InfillTokens(1, 2, 3, 4, 5)
    assert infill_tokens({"<｜fim▁begin｜>": 1, "<｜fim▁hole｜>": 2, "<｜fim▁end｜>": 3}) == InfillTokens(1, 2, 3)
    assert infill_tokens({"<fim_prefix>": 1, "<fim_suffix>": 2}) is None


def test_a_gguf_file_names_its_tokens(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    from tenuto.pipelines.llama_cpp import Model
    from tests.pipelines.tiny_llama import FIM, REPOSITORY, id_of, tiny_llama

    whole = Model(tiny_llama(tmp_path / "whole.gguf", tokens={**FIM, **REPOSITORY}), vocabulary_only=True)
    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
    assert whole.infill == InfillTokens(*map(id_of, names))
    assert Model(tiny_llama(tmp_path / "none.gguf", tokens={}), vocabulary_only=True).infill is None
