"""What a scripted model reads of the conversation in its slot."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.scripted.reading import Talk
from tenuto.pipelines.scripted.script import Conversation
from tenuto.pipelines.scripted.tokenizer import ASSISTANT, END, ROLES, SPECIALS

SYSTEM, USER, TOOL = (SPECIALS[f"<|{role}|>"] for role in ("system", "user", "tool"))


def said(role: int, text: str) -> list[int]:
    return [role, *text.encode(), END]


class Counted(list[int]):
    """Counts the tokens that are read of it."""

    read = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.read += len(found) if isinstance(found, list) else 1
        return found

    def __iter__(self) -> Any:
        self.read += len(self)
        return super().__iter__()

    def __contains__(self, token: object) -> bool:
        self.read += len(self)
        return super().__contains__(token)

    def count(self, token: int) -> int:
        self.read += len(self)
        return super().count(token)


def test_a_turn_after_ten_thousand_others_reads_no_more_than_one_after_few() -> None:
    reads = []
    for turns in (2, 5000):
        talk = Talk.of(said(SYSTEM, "Be brief."))
        for number in range(turns):
            talk.follow([*said(USER, f"{number:9}"), *said(ASSISTANT, f"{number:9}")])
        talk.follow([*said(USER, "and now?"), *said(ASSISTANT, ""), *said(TOOL, "84"), ASSISTANT])
        talk.tokens = counted = Counted(talk.tokens)
        assert talk.conversation() == Conversation("Be brief.", "and now?", "84", turns + 2)
        reads.append(counted.read)
    assert reads[0] == reads[1] < 100


TOKENS = st.lists(st.sampled_from([*ROLES, END, 65, 66]), max_size=30)


@given(TOKENS, st.lists(TOKENS, max_size=3), st.integers(0, 30))
def test_a_talk_that_was_cut_and_went_on_is_that_of_its_tokens(
    begin: list[int], more: list[list[int]], length: int
) -> None:
    talk = Talk.of(begin).cut(length)
    for tokens in more:
        talk.follow(tokens)
    assert talk == Talk.of([*begin[:length], *(token for tokens in more for token in tokens)])
