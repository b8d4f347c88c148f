"""Tokens to the conversation that they hold, and an answer to the tokens that say it. Pure."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tenuto.pipelines.scripted.script import Answer, Conversation
from tenuto.pipelines.scripted.tokenizer import ASSISTANT, END, MARKERS, PIECES, ROLES, SPECIALS

_SYSTEM, _USER, _TOOL = SPECIALS["<|system|>"], SPECIALS["<|user|>"], SPECIALS["<|tool|>"]
_THINK, _THOUGHT = SPECIALS["<think>"], SPECIALS["</think>"]
_MARKER = re.compile("(" + "|".join(map(re.escape, MARKERS)) + ")")
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
            elif token == _THOUGHT:  # somebody else has ended the reasoning
                self._at = self._after_reasoning()
            elif token not in _SPACES and token != _THINK:
                self._at += 1

    def choices(self) -> tuple[int, ...]:
        """Give the next token, and the one that follows where white space is left out."""
        if self._at >= len(self.tokens):
            return (END,)
        after = self._after_space()
        if after in (self._at, len(self.tokens)):
            return (self.tokens[self._at],)
        return self.tokens[self._at], self.tokens[after]

    def _after_reasoning(self) -> int:
        return self.tokens.index(_THOUGHT) + 1 if _THOUGHT in self.tokens[self._at :] else self._at

    def _after_space(self) -> int:
        at = self._at
        while at < len(self.tokens) and self.tokens[at] in _SPACES:
            at += 1
        return at


@dataclass(slots=True)
class Talk:
    """The tokens of a slot, and where the roles stand in them, so that a turn costs what is new in it."""

    tokens: list[int] = field(default_factory=list)
    _roles: list[int] = field(default_factory=list)
    _systems: list[int] = field(default_factory=list)
    _assistants: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, tokens: Sequence[int]) -> "Talk":
        """What these tokens hold."""
        talk = cls()
        talk.follow(tokens)
        return talk

    def follow(self, tokens: Sequence[int]) -> None:
        """Go on by tokens."""
        for place, token in enumerate(tokens, len(self.tokens)):
            if token in ROLES:
                self._roles.append(place)
                if token == _SYSTEM:
                    self._systems.append(place)
                elif token == ASSISTANT:
                    self._assistants.append(place)
        self.tokens.extend(tokens)

    def cut(self, length: int) -> "Talk":
        """The first `length` tokens, as a talk of its own."""
        places = (self._roles, self._systems, self._assistants)
        return Talk(self.tokens[:length], *(found[: bisect_left(found, length)] for found in places))

    def open_turn(self) -> int:
        """Where the answer that is being given begins; 0 where no assistant's turn was opened."""
        return self._assistants[-1] + 1 if self._assistants else 0

    def conversation(self) -> Conversation:
        """What stands before the answer that is being given. Only its last turns are looked at."""
        end = self.open_turn()
        results: list[str] = []
        user, ongoing = "", True
        for role, text in self._turns_backwards(end):
            if role == _USER:
                user = text
                break
            if role == _TOOL and ongoing:
                results.append(text)
            ongoing = ongoing and (role == _TOOL or (role == ASSISTANT and not text))
        systems = bisect_left(self._systems, end)
        tool = "\n".join(reversed(results)) if results else None
        return Conversation(
            system=self._text(self._systems[systems - 1], end) if systems else "",
            user=user,
            tool=tool,
            turn=len(self._assistants) if end else 0,
        )

    def _turns_backwards(self, end: int) -> Iterator[tuple[int, str]]:
        """Each role token before `end` and the text of its turn, the last first."""
        for number in range(bisect_left(self._roles, end) - 1, -1, -1):
            place = self._roles[number]
            yield self.tokens[place], self._text(place, end)

    def _text(self, role: int, end: int) -> str:
        """The text of the turn of the role at a place, which ends where the next begins, or at `end`."""
        following = bisect_right(self._roles, role)
        if following < len(self._roles):
            end = min(end, self._roles[following])
        return b"".join(PIECES[token] for token in self.tokens[role + 1 : end] if token != END).decode(errors="replace")


def answer_tokens(answer: Answer) -> list[int]:
    """Write an answer as the template would, with the token that ends it."""
    tokens: list[int] = []
    if answer.reasoning:
        tokens += [SPECIALS["<think>"], *_bytes(answer.reasoning), SPECIALS["</think>"]]
    tokens += _bytes(answer.text)
    for part in _MARKER.split(answer.raw):
        tokens += [SPECIALS[part]] if part in MARKERS else _bytes(part)
    for call in answer.calls:
        name = json.dumps(call.name, ensure_ascii=False)
        body = f'\n{{"name": {name}, "arguments": {call.arguments}}}\n'
        tokens += [SPECIALS["<tool_call>"], *_bytes(body), SPECIALS["</tool_call>"]]
    return [*tokens, END]


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
