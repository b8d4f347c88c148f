"""Slots that hold tokens and answer from a script. Engine thread only, but for construction."""

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import (
    BackendInfo,
    Bitmask,
    Pending,
    Row,
    RowFailed,
    Sampled,
    Sampling,
    Snapshot,
    TokenLogprob,
    Weights,
)
from tenuto.pipelines.checks import check_drafted, check_rows, check_sampling
from tenuto.pipelines.scripted.reading import Talk, Turn, answer_tokens
from tenuto.pipelines.scripted.script import Script
from tenuto.pipelines.scripted.tokenizer import ASSISTANT, END, PIECES

_BYTES_PER_TOKEN = 4
_LEAD = 50.0
"""By so much the script's token is likelier than all others, which are alike: a logit bias of more overrules it."""
_VOCABULARY = len(PIECES)


class ScriptedSampler:
    """The sampling state of one round: what was asked for. A script leaves nothing to chance."""

    def __init__(self, sampling: Sampling) -> None:
        self.bias = dict(sampling.logit_bias)
        self.logprobs = sampling.logprobs
        self.is_open = True

    def close(self) -> None:
        """Nothing may be sampled with it any more."""
        self.is_open = False


@dataclass(slots=True)
class _Slot:
    """What a slot holds; `turn` is what is known of its last answer, so that a step costs no reading again."""

    talk: Talk = field(default_factory=Talk)
    turn: Turn | None = None
    is_defined: bool = True

    @property
    def tokens(self) -> list[int]:
        """Not to be changed."""
        return self.talk.tokens


@dataclass(slots=True)
class _Step:
    rows: Sequence[Row]
    turns: list[list[Turn]]
    """For each row, how far its turn has come before each token of its draft, and behind the last."""


class ScriptedBackend:
    """A backend whose model is a script. Temperature, seeds and penalties change nothing.

    A mask is held to: where it forbids the script's token, the lowest allowed one is taken. So is a logit bias. The
    script's token has a logprob of 0, all others have the same low one.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._slots = [_Slot() for _ in range(script.slots)]
        self._pending: _Step | None = None
        self._collected: _Step | None = None
        self._info = BackendInfo(
            context=script.cells,
            slots=script.slots,
            cells=script.cells,
            batch_tokens=max(script.batch_tokens, script.slots),
            bytes_per_token=_BYTES_PER_TOKEN,
            can_truncate=script.can_truncate,
            can_batch=script.can_batch,
            drafts=script.drafts if script.can_truncate else 0,
            description="a script",
            runs_on="a script",
            weights=Weights("script", "script"),
        )

    @property
    def info(self) -> BackendInfo:
        """Facts that do not change."""
        return self._info

    @property
    def threads(self) -> int:
        """None that are its own."""
        return 0

    def sampler(self, sampling: Sampling, before: Sequence[int] = (), said: Sequence[int] = ()) -> ScriptedSampler:
        """Sampling state for one round; what came before, and what was said, is in the slot.

        Raises:
            ValueError: a parameter is out of its range.
        """
        del before, said
        check_sampling(sampling, _VOCABULARY)
        return ScriptedSampler(sampling)

    def launch(self, rows: Sequence[Row]) -> _Step:
        """Begin a step over rows of different slots; the last step must have been collected.

        Raises:
            ValueError: the step is invalid; nothing has changed.
            GenerationFailed: the script wants the step to fail; the slots in it are undefined.
        """
        if self._pending is not None:
            raise ValueError("the last step has not been collected")
        self._collected = None
        check_rows(rows, self._info, _VOCABULARY, lambda slot: len(self._slot(slot).tokens), ScriptedSampler)
        turns = [self._fed(row) for row in rows]
        if any(_fails(turn, "forward") for of_row in turns for turn in of_row):
            for row in rows:
                self._slots[row.slot] = _Slot(is_defined=False)
            raise GenerationFailed("the script made this step fail")
        self._pending = _Step(rows, turns)
        return self._pending

    def collect(self, pending: Pending) -> Sampled:
        """Wait for the step and read its tokens.

        Raises:
            ValueError: this is not the step that is under way.
        """
        if self._pending is None or pending is not self._pending:
            raise ValueError("this step is not under way")
        step, self._pending = self._pending, None
        self._collected = step
        delays = [of_row[0].answer.delay_s for of_row in step.turns if of_row]
        if any(delays):
            time.sleep(max(delays))
        pairs = zip(step.rows, step.turns, strict=True)
        return [self._sample(row, of_row[0], row.mask) if of_row else None for row, of_row in pairs]

    def sample_after(
        self, pending: Pending, row: int, drafted: int, mask: Bitmask | None
    ) -> int | TokenLogprob | RowFailed:
        """Sample behind the first `drafted` tokens of a row's draft, which are what has been sampled before them.

        Raises:
            ValueError: this is not the step that was collected last, or its row has no such draft.
        """
        step = self._collected
        check_drafted(step.rows if step is not None and pending is step else (), row, drafted)
        assert step is not None
        return self._sample(step.rows[row], step.turns[row][drafted], mask)

    def fork(self, source: int, target: int, tokens: int) -> None:
        """Make `target`, which is empty, hold the first `tokens` of `source`."""
        origin = self._slot(source)
        held = origin.tokens
        if self._slot(target).tokens or not 0 <= tokens <= len(held):
            raise ValueError(f"slot {target} cannot become the first {tokens} of {len(held)} tokens of slot {source}")
        if 0 < tokens < len(held) and not self._info.can_truncate:
            raise ValueError("this script's cache can only be forked whole")
        self._slots[target] = _Slot(origin.talk.cut(tokens))

    def truncate(self, slot: int, tokens: int) -> bool:
        """Cut a slot back to its first `tokens`. False where the script forbids it: the slot is then as it was."""
        talk = self._slot(slot).talk
        held = talk.tokens
        if not 0 <= tokens <= len(held):
            raise ValueError(f"a slot of {len(held)} tokens cannot be cut to {tokens}")
        if 0 < tokens < len(held) and not self._info.can_truncate:
            return False
        self._slots[slot] = _Slot(talk.cut(tokens))
        return True

    def release(self, slot: int) -> None:
        """Empty a slot, in whatever state it is."""
        self._require(slot)
        self._slots[slot] = _Slot()

    def snapshot(self, slot: int) -> Snapshot:
        """Copy a slot's tokens out, as an array of bytes. The slot stays."""
        tokens = np.array(self._slot(slot).tokens, np.int32)
        return Snapshot(tokens.size, tokens.nbytes, tokens.view(np.uint8))

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """Copy a snapshot into a slot, which is empty. `data` may be any buffer of the bytes that `snapshot` gave."""
        if self._slot(slot).tokens or not 0 <= snapshot.tokens <= self._info.cells:
            raise ValueError(f"slot {slot} is not empty, or too small for {snapshot.tokens} tokens")
        data = np.frombuffer(snapshot.data, np.uint8)
        if data.size != snapshot.tokens * _BYTES_PER_TOKEN:
            raise GenerationFailed("the cache does not fit this model and layout")
        self._slots[slot] = _Slot(Talk.of(data.view(np.int32).tolist()))

    def close(self) -> None:
        """Forget all tokens."""
        self._slots = []

    def _require(self, slot: int) -> _Slot:
        if not 0 <= slot < len(self._slots):
            raise ValueError(f"there is no slot {slot}")
        return self._slots[slot]

    def _slot(self, slot: int) -> _Slot:
        found = self._require(slot)
        if not found.is_defined:
            raise ValueError("the slot is undefined after a failed step; release it first")
        return found

    @staticmethod
    def _feed(slot: _Slot, tokens: Sequence[int]) -> None:
        slot.talk.follow(tokens)
        if slot.turn is not None:
            if ASSISTANT in tokens:
                slot.turn = None
            else:
                slot.turn.follow(tokens)

    def _turn(self, slot: int) -> Turn:
        """What is to be said in a slot's last turn, and how far it has come."""
        held = self._slots[slot]
        if held.turn is None:
            begin = held.talk.open_turn()
            answer = self._script.answer(held.talk.conversation())
            held.turn = Turn(answer, answer_tokens(answer) if begin else [END])
            held.turn.follow(held.tokens[begin:])
        return held.turn

    def _fed(self, row: Row) -> list[Turn]:
        """Feed a row, and tell how far its turn has come wherever a token may be sampled."""
        slot, turns = self._slots[row.slot], list[Turn]()
        self._feed(slot, row.tokens)
        if row.sampler is not None:
            turns.append(copy.copy(self._turn(row.slot)))
        for token in row.draft:
            self._feed(slot, [token])
            turns.append(copy.copy(self._turn(row.slot)))
        return turns

    @staticmethod
    def _sample(row: Row, turn: Turn, mask: Bitmask | None) -> int | TokenLogprob | RowFailed:
        if _fails(turn, "sampler"):
            return RowFailed(GenerationFailed("the script made the sampler fail"))
        assert isinstance(row.sampler, ScriptedSampler)
        choices = turn.choices()
        try:
            token = choices[0] if mask is None else _allowed(choices, mask)
            if row.sampler.bias:
                token = _biased(token, row.sampler.bias, mask)
        except ValueError as error:
            return RowFailed(error)
        return token if row.sampler.logprobs is None else _told(token, choices[0], row.sampler.logprobs)


def _fails(turn: Turn, how: str) -> bool:
    return turn.answer.fail == how and turn.said == turn.answer.fail_at


def _allowed(choices: Sequence[int], mask: Bitmask) -> int:
    """The first choice that the mask allows, else the lowest token that it allows."""
    bits = _bits(mask)
    if not bits.any():
        raise ValueError("no token is allowed")
    return next((token for token in choices if bits[token]), int(bits.argmax()))


def _biased(token: int, bias: Mapping[int, float], mask: Bitmask | None) -> int:
    """What is likeliest once the bias is added, where the mask leaves `token` in the lead."""
    logits = np.zeros(_VOCABULARY)
    logits[token] = _LEAD
    for other, value in bias.items():
        if 0 <= other < _VOCABULARY:
            logits[other] += value
    if mask is not None:
        logits[_bits(mask) == 0] = -np.inf
    return int(logits.argmax())


def _bits(mask: Bitmask) -> NDArray[np.uint8]:
    words = -(-_VOCABULARY // 32)
    if mask.ndim != 1 or mask.itemsize != 4 or mask.size < words:
        raise ValueError(f"a mask for {_VOCABULARY} tokens has {words} words of 32 bits")
    return np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), count=_VOCABULARY, bitorder="little")


def _told(token: int, scripted: int, alternatives: int) -> TokenLogprob:
    others = (other for other in range(_VOCABULARY) if other != scripted)
    top = [(scripted, 0.0), *((other, -_LEAD) for other in islice(others, max(alternatives - 1, 0)))]
    return TokenLogprob(token, 0.0 if token == scripted else -_LEAD, tuple(top[:alternatives]))
