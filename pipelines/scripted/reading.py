"""Tokens to the conversation that they hold, and an answer to the tokens that say it. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenuto.pipelines.scripted.script import Answer, Conversation
from tenuto.pipelines.scripted.tokenizer import ASSISTANT, END, PIECES, ROLES, SPECIALS

_SYSTEM, _USER, _TOOL = SPECIALS["<|system|>"], SPECIALS["<|user|>"], SPECIALS["<|tool|>"]
_SPACES = frozenset(b" \n\t\r")


@dataclass(slots=True)
class Turn:
    """An answer, the tokens that say it, and how far it has come: a function of the tokens in the slot alone."""

    answer: Answer
    tokens: list[int]
    said: int = 0
    _at: int = 0

    def follow(self, tokens: Sequence[int]) -> None:
        """Go on by tokens that have been said. White space may differ, as a grammar may want it otherwise."""
        for token in tokens:
            self.said += 1
            choices = self.choices()
            if token == choices[0]:
                self._at += 1
            elif token == choices[-1]:
                self._at = self._after_space() + 1
            elif token not in _SPACES:
                self._at += 1

    def choices(self) -> tuple[int, ...]:
        """Give the next token, and the one that follows where white space is left out."""
        if self._at >= len(self.tokens):
            return (END,)
        after = self._after_space()
        if after in (self._at, len(self.tokens)):
            return (self.tokens[self._at],)
        return self.tokens[self._at], self.tokens[after]

    def _after_space(self) -> int:
        at = self._at
        while at < len(self.tokens) and self.tokens[at] in _SPACES:
            at += 1
        return at


def open_turn(tokens: Sequence[int]) -> int:
    """Where the answer that is being given begins; 0 where no assistant's turn was opened."""
    for place in range(len(tokens) - 1, -1, -1):
        if tokens[place] == ASSISTANT:
            return place + 1
    return 0


def conversation(tokens: list[int]) -> Conversation:
    """Read the conversation that stands before an answer; `tokens` end with the role that opens it.

    Only its last turns are looked at one token after the other.
    """
    results: list[str] = []
    user, ongoing = "", True
    for role, text in _turns_backwards(tokens, len(tokens)):
        if role == _USER:
            user = text
            break
        if role == _TOOL and ongoing:
            results.append(text)
        ongoing = ongoing and (role == _TOOL or (role == ASSISTANT and not text))
    system = ""
    if _SYSTEM in tokens:
        end = len(tokens) - tokens[::-1].index(_SYSTEM)
        following = (place for place in range(end, len(tokens)) if tokens[place] in ROLES)
        system = next(_turns_backwards(tokens, next(following, len(tokens))))[1]
    tool = "\n".join(reversed(results)) if results else None
    return Conversation(system=system, user=user, tool=tool, turn=tokens.count(ASSISTANT))


def answer_tokens(answer: Answer) -> list[int]:
    """Write an answer as the template would, with the token that ends it."""
    tokens: list[int] = []
    if answer.reasoning:
        tokens += [SPECIALS["<think>"], *_bytes(answer.reasoning), SPECIALS["</think>"]]
    tokens += _bytes(answer.text)
    for call in answer.calls:
        name = json.dumps(call.name, ensure_ascii=False)
        body = f'\n{{"name": {name}, "arguments": {call.arguments}}}\n'
        tokens += [SPECIALS["<tool_call>"], *_bytes(body), SPECIALS["</tool_call>"]]
    return [*tokens, END]


def _turns_backwards(tokens: Sequence[int], end: int) -> Iterator[tuple[int, str]]:
    """Each role token and the text up to the end of its turn, the last first."""
    for place in range(end - 1, -1, -1):
        if tokens[place] in ROLES:
            text = b"".join(PIECES[token] for token in tokens[place + 1 : end] if token != END)
            yield tokens[place], text.decode(errors="replace")
            end = place


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
