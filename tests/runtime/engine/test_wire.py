"""What passes between an engine's process and its parent arrives as it was, however it is cut on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.backend import Sampling, TokenLogprob
from tenuto.pipelines.base import GrammarSource
from tenuto.runtime.engine.counts import COUNTED
from tenuto.runtime.engine.messages import (
    LASTING,
    Admitted,
    Cancel,
    Command,
    Embedded,
    EngineStatus,
    Event,
    Failed,
    Forget,
    Hint,
    Read,
    Release,
    Report,
    Residency,
    Round,
    RoundUsage,
    Stop,
    StopCause,
    Stopped,
    Submit,
    TokensSampled,
    Unknown,
    Withdraw,
)
from tenuto.runtime.engine.own_process import commands, reports
from tenuto.runtime.engine.own_process.frames import Frames, Kind, frame
from tenuto.sessions.tokens import NOTHING, Tokens

ids = st.text(max_size=40)
tokens = st.integers(0, 2**32 - 1)
counts = st.integers(0, 2**60)
seconds = st.floats(0, 1e6)
logprobs = st.floats(max_value=0, allow_nan=False)
tops = st.lists(st.tuples(st.integers(0, 2**31 - 1), logprobs), max_size=3).map(tuple)
told = st.none() | st.builds(TokenLogprob, st.integers(0, 2**31 - 1), logprobs, tops)
usages = st.builds(
    RoundUsage,
    counts,
    counts,
    counts,
    st.integers(-(2**60), 2**60),
    counts,
    counts,
    st.sampled_from(Residency),
    st.none() | ids,
    seconds,
    st.none() | seconds,
    seconds,
)
any_text = st.text(st.characters(), max_size=40)  # half a character may stand in what an error quotes
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(TokensSampled, ids, tokens.map(lambda one: (one,))),
    st.builds(TokensSampled, ids, st.lists(tokens, max_size=5).map(tuple)),
    st.lists(st.tuples(tokens, told), min_size=1, max_size=5).flatmap(
        lambda both: st.builds(
            TokensSampled,
            ids,
            st.just(tuple(token for token, _ in both)),
            st.just(tuple(logprob for _, logprob in both)),
        )
    ),
    st.builds(Stopped, ids, st.sampled_from(StopCause), usages, st.none() | any_text),
    st.builds(Failed, ids, any_text, usages),
    st.builds(Unknown, ids),
    st.builds(Admitted, ids),
)
places = st.dictionaries(st.sampled_from(Residency), counts)
statuses = st.builds(
    EngineStatus,
    counts,
    st.booleans(),
    counts,
    counts,
    counts,
    counts,
    counts,
    st.fixed_dictionaries(dict.fromkeys(LASTING, counts)),
    places,
    counts,
    prefill_slowdown=seconds,
    interrupted=counts,
    counts=st.lists(counts, min_size=len(COUNTED), max_size=len(COUNTED)).map(tuple),
    threads=st.integers(0, 4096),
)


@given(st.lists(events, max_size=6), statuses)
def test_a_report_arrives_as_it_was(told: list[Event], status: EngineStatus) -> None:
    report = Report(told, status)
    [(kind, payload)] = Frames().push(reports.encoded(report))
    assert (kind, reports.decoded(payload)) == (Kind.REPORT, report)


@given(st.lists(st.binary(max_size=30), max_size=8), st.data())
def test_frames_arrive_whole_however_they_are_cut(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(Kind.READ, payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    frames = Frames()
    found: list[tuple[Kind, bytes]] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += frames.push(stream[begin:end])
    assert found == [(Kind.READ, payload) for payload in payloads]


@pytest.mark.parametrize("frame", [b"\0\0\0\0", b"\xff\xff\xff\xff\1"])
def test_a_frame_of_no_length_or_too_great_a_one_is_refused(frame: bytes) -> None:
    with pytest.raises(ValueError, match="a frame of"):
        list(Frames(1 << 24).push(frame))


def test_a_frame_of_no_known_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="200"):
        list(Frames().push(b"\1\0\0\0\xc8"))


@pytest.mark.parametrize("cut", range(0, 90, 7))
def test_a_damaged_report_is_refused(cut: int) -> None:
    usage = RoundUsage(prompt=3)
    whole = reports.encoded(Report([Stopped("sequence", StopCause.END, usage, "x")], EngineStatus()))[5:]
    with pytest.raises(ValueError, match=r"damaged|too early"):
        reports.decoded(whole[:cut])


@pytest.mark.parametrize(
    "wrong",
    [
        Stopped("s", StopCause.END, RoundUsage(sampled=-1)),
        Failed("s", "", RoundUsage(total_s=float("nan"))),
        TokensSampled("s", (1,), (TokenLogprob(1, float("nan")),)),
        TokensSampled("s", (1, 2), (None,)),
    ],
)
def test_what_no_engine_has_to_tell_is_refused(wrong: Event) -> None:
    with pytest.raises(ValueError, match=r"usage|logprob"):
        reports.decoded(reports.encoded(Report([wrong], EngineStatus()))[5:])


@pytest.mark.parametrize(
    "told",
    [
        TokensSampled("s", (10,)),
        TokensSampled("s", (9, 10)),
        TokensSampled("s", (9,), (TokenLogprob(10, 0.0),)),
        TokensSampled("s", (9,), (TokenLogprob(9, 0.0, ((9, 0.0), (-1, 0.0))),)),
    ],
)
def test_a_token_that_the_model_does_not_have_is_refused(told: Event) -> None:
    with pytest.raises(ValueError, match="beyond the vocabulary of 10"):
        reports.decoded(reports.encoded(Report([told], EngineStatus()))[5:], 10)


ROUND = Round(
    5, Sampling(0.5, seed=3), frozenset({1, 2}), ("stop",), GrammarSource("start: /a/", banned=frozenset({7}))
)


@pytest.mark.parametrize(
    "command",
    [
        Submit("s", "alice", NOTHING, [1, 2, 3], ROUND, 2, 1, [9]),
        Submit("s", "alice", Tokens([5, 6]).prefix(), Tokens([1, 2, 3]), ROUND),
        Cancel("s"),
        Release("s/ü"),
        Read("s", 256),
        Hint("s/ü", 0.25, 1e6),
        Forget("s/ü", "kept"),
        Stop(),
    ],
)
def test_a_command_arrives_as_it_was(command: Command) -> None:
    [(kind, payload)] = Frames().push(commands.encoded(command))
    assert commands.decoded(kind, payload) == command


def test_tokens_that_are_none_arrive_for_the_engine_to_refuse() -> None:
    [(kind, payload)] = Frames().push(commands.encoded(Submit("s", "alice", NOTHING, [-1], ROUND)))
    arrived = commands.decoded(kind, payload)
    assert isinstance(arrived, Submit)
    assert arrived.tokens == [-1]


def test_what_concerns_vectors_is_refused() -> None:
    with pytest.raises(TypeError, match="Withdraw"):
        commands.encoded(Withdraw("request"))
    with pytest.raises(TypeError, match="Embedded"):
        reports.encoded(Report([Embedded("request", (), None)], EngineStatus()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="REPORT"):
        commands.decoded(Kind.REPORT, b"")
