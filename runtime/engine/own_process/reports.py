"""An engine's reports as bytes. Structs cost little to hand over, and cannot make their reader run anything."""

import math
import struct
from array import array
from typing import Any

from tenuto.pipelines.backend import TokenLogprob
from tenuto.runtime.engine.counts import COUNTED
from tenuto.runtime.engine.messages import (
    LASTING,
    Admitted,
    EngineStatus,
    Event,
    Failed,
    Forgotten,
    Report,
    Residency,
    RoundUsage,
    StopCause,
    Stopped,
    TokensSampled,
    Unknown,
)
from tenuto.runtime.engine.own_process.frames import Kind, frame

_PLACES = tuple(Residency)
_CAUSES = tuple(StopCause)
_STATUS = struct.Struct(f"<Q?QQQQQQ{len(LASTING)}q{len(_PLACES)}qdQ{len(COUNTED)}QII")
_EVENT = struct.Struct("<BHI")
"""Its kind, the length of its sequence's name, and a number: a token, or how many of something follow."""
_USAGE = struct.Struct("<qqqqqqBddd")
_LENGTH = struct.Struct("<i")
_LOGPROB = struct.Struct("<idI")
_TOP = struct.Struct("<id")

ANY = 1 << 32
"""A vocabulary that has every token."""

_TOKEN, _TOKENS, _STOPPED, _FAILED, _UNKNOWN, _FORGOTTEN, _ADMITTED = range(7)


def encoded(report: Report) -> bytes:
    """A report as a frame.

    Raises:
        TypeError: an event in it is none of an engine that generates.
    """
    status = report.status
    parts = [
        _STATUS.pack(
            status.commands,
            status.busy,
            status.steps,
            status.computed,
            status.sampled,
            status.drafted,
            status.accepted,
            status.shared,
            *(status.sequences.get(state, 0) for state in LASTING),
            *(status.cache_bytes.get(place, -1) for place in _PLACES),
            status.prefill_slowdown,
            status.interrupted,
            *status.counts,
            status.threads,
            len(report.events),
        )
    ]
    for event in report.events:
        _add(event, parts)
    return frame(Kind.REPORT, b"".join(parts))


def _add(event: Event, parts: list[bytes]) -> None:
    match event:
        case TokensSampled(tokens=(token,), logprobs=()):
            _begin(parts, _TOKEN, event.sequence, token)
        case TokensSampled():
            _begin(parts, _TOKENS, event.sequence, len(event.tokens))
            parts.append(array("I", event.tokens).tobytes())
            parts.append(_LENGTH.pack(len(event.logprobs)))
            parts.extend(map(_logprob, event.logprobs))
        case Stopped():
            _begin(parts, _STOPPED, event.sequence, _CAUSES.index(event.cause))
            parts += (_usage(event.usage), _text(event.usage.miss_reason), _text(event.stop_string))
        case Failed():
            _begin(parts, _FAILED, event.sequence)
            parts += (_usage(event.usage), _text(event.usage.miss_reason), _text(event.error))
        case Unknown():
            _begin(parts, _UNKNOWN, event.sequence)
        case Forgotten():
            _begin(parts, _FORGOTTEN, event.sequence)
            parts.append(_text(event.error))
        case Admitted():
            _begin(parts, _ADMITTED, event.sequence)
        case _:
            raise TypeError(f"{type(event).__name__} is no event of an engine that generates")


def _begin(parts: list[bytes], kind: int, sequence: str, number: int = 0) -> None:
    name = sequence.encode()
    parts += (_EVENT.pack(kind, len(name), number), name)


def _text(text: str | None) -> bytes:
    if text is None:
        return _LENGTH.pack(-1)
    # An error may quote what a person wrote, half a character among it.
    told = text.encode(errors="surrogatepass")
    return _LENGTH.pack(len(told)) + told


def _usage(usage: RoundUsage) -> bytes:
    return _USAGE.pack(
        usage.prompt,
        usage.computed,
        usage.cached,
        usage.new,
        usage.sampled,
        usage.reasoning,
        _PLACES.index(usage.residency),
        usage.waited_s,
        math.nan if usage.first_token_s is None else usage.first_token_s,
        usage.total_s,
    )


def _logprob(told: TokenLogprob | None) -> bytes:
    if told is None:
        return _LOGPROB.pack(-1, 0.0, 0)
    head = _LOGPROB.pack(told.token, told.logprob, len(told.top))
    return head + b"".join(_TOP.pack(*entry) for entry in told.top)


def decoded(payload: bytes, vocabulary: int = ANY) -> Report:
    """The report in a frame's payload, of a model of so many tokens.

    Raises:
        ValueError: it is damaged, or tells what no engine has to tell.
    """
    try:
        return _decoded(payload, vocabulary)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a report is damaged: {error}") from error


def _decoded(payload: bytes, vocabulary: int) -> Report:
    commands, busy, steps, computed, sampled, drafted, accepted, shared, *rest = _STATUS.unpack_from(payload)
    states, rest = rest[: len(LASTING)], rest[len(LASTING) :]
    places, (slowdown, interrupted, *counts, threads, count) = rest[: len(_PLACES)], rest[len(_PLACES) :]
    if not (math.isfinite(slowdown) and slowdown >= 0):
        raise ValueError(f"a slowdown of {slowdown}")
    status = EngineStatus(
        commands,
        busy,
        steps,
        computed,
        sampled,
        drafted,
        accepted,
        dict(zip(LASTING, states, strict=True)),
        {place: nbytes for place, nbytes in zip(_PLACES, places, strict=True) if nbytes >= 0},
        shared,
        slowdown,
        interrupted,
        tuple(counts),
        threads,
    )
    cursor = _Cursor(payload, _STATUS.size, vocabulary)
    return Report([cursor.event() for _ in range(count)], status)


class _Cursor:
    """Reads a payload from a place on."""

    def __init__(self, payload: bytes, at: int, vocabulary: int) -> None:
        self._payload, self._at, self._vocabulary = payload, at, vocabulary

    def event(self) -> Event:
        kind, length, number = self._unpack(_EVENT)
        sequence = self._take(length).decode()
        match kind:
            case 0:
                return TokensSampled(sequence, (self._token(number),))
            case 1:
                tokens = tuple(map(self._token, array("I", self._take(4 * number))))
                (logprobs,) = self._unpack(_LENGTH)
                if logprobs not in (0, number):
                    raise ValueError(f"{logprobs} logprobs of {number} tokens")
                return TokensSampled(sequence, tokens, tuple(self._logprob() for _ in range(logprobs)))
            case 2:
                usage = self._usage()
                return Stopped(sequence, _CAUSES[number], usage, self._text())
            case 3:
                usage = self._usage()
                return Failed(sequence, self._text() or "", usage)
            case 4:
                return Unknown(sequence)
            case 5:
                return Forgotten(sequence, self._text())
            case 6:
                return Admitted(sequence)
            case _:
                raise ValueError(f"{kind} is no event")

    def _usage(self) -> RoundUsage:
        prompt, computed, cached, new, sampled, reasoning, place, waited, first, total = self._unpack(_USAGE)
        if (
            min(prompt, computed, cached, sampled, reasoning) < 0
            or not math.isfinite(waited + total)
            or math.isinf(first)
        ):
            raise ValueError("a usage that cannot be")
        return RoundUsage(
            prompt=prompt,
            computed=computed,
            cached=cached,
            new=new,
            sampled=sampled,
            reasoning=reasoning,
            residency=_PLACES[place],
            miss_reason=self._text(),
            waited_s=waited,
            first_token_s=None if math.isnan(first) else first,
            total_s=total,
        )

    def _logprob(self) -> TokenLogprob | None:
        token, logprob, count = self._unpack(_LOGPROB)
        if token < 0:
            return None
        if math.isnan(logprob):
            raise ValueError("a logprob that is no number")
        top = tuple((self._token(entry[0]), entry[1]) for entry in (self._unpack(_TOP) for _ in range(count)))
        return TokenLogprob(self._token(token), logprob, top)

    def _token(self, token: int) -> int:
        """One that the codec knows: any other would stay in a session, whose next turns would fail of it."""
        if not 0 <= token < self._vocabulary:
            raise ValueError(f"a token beyond the vocabulary of {self._vocabulary}")
        return token

    def _text(self) -> str | None:
        (length,) = self._unpack(_LENGTH)
        return None if length < 0 else self._take(length).decode(errors="surrogatepass")

    def _take(self, length: int) -> bytes:
        begin, self._at = self._at, self._at + length
        if self._at > len(self._payload):
            raise ValueError("a report ends too early")
        return self._payload[begin : self._at]

    def _unpack(self, form: struct.Struct) -> Any:
        values = form.unpack_from(self._payload, self._at)
        self._at += form.size
        return values
