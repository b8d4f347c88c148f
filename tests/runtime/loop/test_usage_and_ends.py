"""The paragraph `Usage and ends`: what a run has cost, and why it has come to its end."""

from pathlib import Path

import anyio
import pytest

from tenuto.runtime.loop.events import ToolCalling
from tenuto.runtime.loop.requests import Reasoning
from tenuto.sessions.items import AssistantItem, ToolResultItem
from tenuto.sessions.records import RunStatus
from tenuto.tools.approvals import Rules
from tenuto.tools.registry import CallLimits
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Process, answer, asks, call, client_tools, codec, says, until
from tests.runtime.loop.test_match import SLOW, waits_for
from tests.runtime.loop.test_one_open_run import TWO, results
from tests.runtime.loop.tools import Tools

COUNT = asks("count", call("count__add", by=1), text="Let me see.")
ALWAYS = {"tool_contains": "", "calls": [call("count__add", by=1)]}


async def ledger_length(process: Process, id: str = "s") -> int:
    (ledger,) = (await process.session(id)).ledgers.values()
    return len(ledger.tokens)


async def test_the_figures_of_a_run_with_tools_add_up(open_process: Open) -> None:
    process = await open_process(COUNT, says("hi", "ho"))
    await process.ask("hi")
    done = await process.ask("count")
    usage, rounds = done.usage, done.usage.rounds
    assert len(rounds) == 2
    assert usage.completion == sum(one.sampled for one in rounds)
    assert usage.prompt == await ledger_length(process) - usage.completion
    assert usage.computed == sum(one.computed for one in rounds)
    assert usage.cached == usage.prompt - usage.computed
    assert [one.prompt for one in rounds] == [one.computed + one.cached for one in rounds]


async def test_completion_tokens_are_all_that_were_sampled(open_process: Open) -> None:
    process = await open_process(COUNT)
    done = await process.ask("count")
    spoken = [one for one in await process.items() if isinstance(one, AssistantItem)]
    assert done.usage.rounds[1].sampled == len(codec().tokenize(spoken[1].text)) + 1, "and the end of the turn"
    assert done.usage.rounds[0].sampled > len("Let me see.") + len('{"by": 1}')


async def test_a_resume_computes_one_token_more_than_the_new_text(open_process: Open) -> None:
    process = await open_process(COUNT)
    done = await process.ask("count")
    resumed = done.usage.rounds[1]
    (result,) = [one for one in await process.items() if isinstance(one, ToolResultItem)]
    new_text = len("|") + len(result.text) + len("|") + len("|")  # <|tool|>1<|end|><|assistant|>
    assert resumed.computed == resumed.new == new_text + 1


async def test_a_request_that_brings_results_counts_what_comes_after_them(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    done = await process.ask(results(paused, "rain", "sun"))
    (own,) = done.usage.rounds
    assert (done.usage.completion, done.usage.computed) == (own.sampled, own.computed)
    assert done.usage.prompt + done.usage.completion == await ledger_length(process)
    assert done.usage.cached == done.usage.prompt - done.usage.computed


async def test_the_figures_of_a_run_go_over_all_its_requests(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    done = await process.ask(results(paused, "rain", "sun"))
    assert done.run_usage.rounds == [*paused.usage.rounds, *done.usage.rounds]
    assert done.run_usage.completion == paused.usage.completion + done.usage.completion
    assert done.run_usage.computed == paused.usage.computed + done.usage.computed
    assert done.run_usage.prompt + done.run_usage.completion == await ledger_length(process)


async def test_each_request_of_a_run_has_an_answer_with_an_id_of_its_own(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    done = await process.ask(results(paused, "rain", "sun"))
    other = await process.ask("hi", "other")
    assert paused.run_id == done.run_id != other.run_id
    assert len({paused.leg_id, done.leg_id, other.leg_id}) == 3


async def test_an_answer_has_the_same_id_and_figures_after_a_restart(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    done = await process.ask(results(paused, "rain", "sun"))
    later = await open_process(left=process.left_behind(tmp_path))
    again = (await later.runner.run(ALICE, done.run_id)).snapshot()
    assert (again.leg_id, again.usage, again.run_usage) == (done.leg_id, done.usage, done.run_usage)


async def test_what_a_decision_leads_to_belongs_to_the_request_that_it_was_about(open_process: Open) -> None:
    process = await open_process(COUNT, configured={"count": Rules()})
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    done = await answer(await process.decide(paused.pause.pause_id, approve=True))
    assert done.leg_id == paused.leg_id
    assert done.usage.rounds == done.run_usage.rounds
    assert done.usage.rounds[:1] == paused.usage.rounds


@pytest.mark.parametrize("limit", [1, 5])
async def test_max_tokens_bounds_the_run(open_process: Open, limit: int) -> None:
    process = await open_process(says("hi", "A long answer."))
    done = await process.ask("hi", max_tokens=limit)
    assert (done.status, done.stop_reason) == (RunStatus.INCOMPLETE, "length")
    assert (done.usage.completion, done.text) == (limit, "A long answer."[:limit])


async def test_max_tokens_counts_the_rounds_together(open_process: Open) -> None:
    process = await open_process(asks("peek", call("count__peek")), {"tool": "0", "text": "A long answer."})
    whole = await process.ask("peek", "other")
    limit = whole.usage.rounds[0].sampled + 4
    done = await process.ask("peek", max_tokens=limit)
    assert (done.usage.completion, done.stop_reason) == (limit, "length")
    assert done.text.endswith("A lo")


async def test_max_tokens_is_each_requests_own(open_process: Open) -> None:
    process = await open_process(TWO, {"tool": "rain\nsun", "text": "A long answer."})
    paused = await process.ask("weather?", tools=client_tools(), max_tokens=400)
    done = await process.ask(results(paused, "rain", "sun"), max_tokens=6)
    assert (done.text, done.stop_reason) == ("A long", "length")


async def test_a_call_that_the_limit_cuts_is_not_made(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT)
    whole = await process.ask("count", "other")
    tools.count.value = 0
    for short in range(1, 12):
        done = await process.ask("count", f"s{short}", max_tokens=whole.usage.rounds[0].sampled - short)
        assert (done.status, done.stop_reason, done.server_calls) == (RunStatus.INCOMPLETE, "length", [])
        assert (await process.ask("hi", f"s{short}")).text == "hi"
    assert tools.count.value == 0


async def test_a_clients_call_that_the_limit_cuts_is_not_the_answers(open_process: Open) -> None:
    process = await open_process(TWO)
    done = await process.ask("weather?", tools=client_tools(), max_tokens=70)
    assert (done.status, done.stop_reason, done.calls, done.pause) == (RunStatus.INCOMPLETE, "length", [], None)


async def test_at_the_round_cap_there_is_one_last_round_without_calls(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, {"tool": "1", "calls": [call("count__add", by=1)]}, {"tool": "2", "text": "2!"})
    done = await process.ask("count", max_tool_rounds=2)
    assert (done.status, done.stop_reason) == (RunStatus.COMPLETED, "max_tool_rounds")
    assert done.text == "Let me see.2!"
    assert tools.count.value == 2


async def test_in_the_last_round_a_call_cannot_even_be_begun(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, ALWAYS)
    done = await process.ask("count", max_tool_rounds=3, max_tokens=300)
    assert tools.count.value == 3
    assert len(done.server_calls) == 3
    assert len(done.usage.rounds) == 4
    assert done.stop_reason in ("max_tool_rounds", "length")
    assert (await process.tokens()).count("<tool_call>") == 3 + 1, "the tool block tells how a call is written"


async def test_the_round_cap_is_each_requests_own(open_process: Open) -> None:
    process = await open_process(
        COUNT,
        {"tool": "1", "calls": [call("weather", city="Oslo")]},
        {"tool": "rain", "calls": [call("count__add", by=1)]},
        {"tool": "2", "text": "Two."},
    )
    both = client_tools(servers={"count": None})
    paused = await process.ask("count", tools=both, max_tool_rounds=2)
    done = await process.ask(results(paused, "rain"), tools=both, max_tool_rounds=2)
    assert (done.text, done.stop_reason) == ("Two.", "end")


async def test_a_repeat_of_the_same_call_and_result_ends_it(open_process: Open, tools: Tools) -> None:
    process = await open_process(
        asks("sum", call("calculator__evaluate", expression="1+1")),
        {"tool": "2", "turn": 2, "calls": [call("calculator__evaluate", expression="1+1")]},
        {"tool": "2", "text": "Two."},
    )
    done = await process.ask("sum")
    assert (done.status, done.stop_reason, done.text) == (RunStatus.COMPLETED, "repeat", "Two.")
    assert len(done.server_calls) == 2


async def test_the_same_call_with_another_result_is_no_repeat(open_process: Open) -> None:
    process = await open_process(
        COUNT, {"tool": "1", "calls": [call("count__add", by=1)]}, {"tool": "2", "text": "Two."}
    )
    assert (await process.ask("count")).stop_reason == "end"


async def test_at_the_deadline_calls_are_given_up_and_one_last_round_is_said(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW, {"tool_contains": "did not answer", "text": "It took too long."})
    done = await process.ask("slow", deadline_s=0.05)
    assert (done.status, done.stop_reason, done.text) == (RunStatus.COMPLETED, "deadline", "It took too long.")
    assert tools.slow.cancelled == 1
    assert "may have had an effect" in done.server_calls[0].result


async def test_a_tool_that_takes_too_long_is_a_result_and_not_the_end(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW, limits={"slow": CallLimits(timeout_s=0.05)})
    done = await process.ask("slow")
    assert (done.status, done.stop_reason) == (RunStatus.COMPLETED, "end")
    assert "did not answer" in done.text


@pytest.mark.parametrize(
    ("tool", "told"),
    [("refuse", "the server cannot be reached"), ("crash", "may have had an effect"), ("deny", "it is not allowed")],
)
async def test_a_tool_that_fails_is_a_result_that_the_model_reads(open_process: Open, tool: str, told: str) -> None:
    process = await open_process(asks("try", call(f"broken__{tool}")))
    done = await process.ask("try")
    assert done.status is RunStatus.COMPLETED
    assert told in done.text
    assert [one.status for one in done.server_calls] == ["failed"]
    (result,) = [one for one in await process.items() if isinstance(one, ToolResultItem)]
    assert result.is_error


async def test_half_a_character_in_a_result_is_mended(open_process: Open) -> None:
    process = await open_process(asks("try", call("broken__half")))
    done = await process.ask("try")
    assert (done.status, done.text) == (RunStatus.COMPLETED, "half ?")
    (result,) = [one for one in await process.items() if isinstance(one, ToolResultItem)]
    assert (result.text, result.structured) == ("half ?", {"half": ["?"]})


async def test_a_stop_string_ends_a_run(open_process: Open) -> None:
    process = await open_process(says("hi", "one two three"))
    done = await process.ask("hi", stop=("two",))
    assert (done.status, done.stop_reason, done.text) == (RunStatus.COMPLETED, "stop_string", "one ")


@pytest.mark.parametrize("fail", ["forward", "sampler"])
async def test_a_step_that_fails_ends_its_run_and_the_session_goes_on(open_process: Open, fail: str) -> None:
    process = await open_process(says("hi", "x" * 20, fail=fail, fail_at=10))
    done = await process.ask("hi")
    assert (done.status, done.stop_reason, done.error_code) == (RunStatus.FAILED, "error", "generation_failed")
    assert done.text == "x" * 10
    session = await process.session()
    assert session.open_run is None
    assert (await process.ask("again")).text == "again"


async def test_a_step_that_fails_leaves_other_runs_alone(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW, says("hi", "x", fail="forward"))
    slow = await process.start("slow", "slow")
    await waits_for(tools)
    assert (await process.ask("hi")).status is RunStatus.FAILED
    tools.slow.go.set()
    assert (await answer(slow)).text == "waited for it"


async def test_a_run_tells_what_it_has_cost_so_far(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await until(run, ToolCalling)
    figures = run.snapshot().usage
    assert len(figures.rounds) == 1
    assert figures.completion == figures.rounds[0].sampled
    tools.slow.go.set()
    with anyio.fail_after(HANGS_S):
        await run.answer()


async def test_a_bound_on_reasoning_counts_the_rounds_of_a_request_together(open_process: Open) -> None:
    process = await open_process(
        {"user": "peek", "reasoning": "look first", "calls": [call("count__peek")]},
        {"tool": "0", "reasoning": "nothing there", "text": "None."},
    )
    whole = await process.ask("peek", "other")
    assert [one.reasoning for one in whole.usage.rounds] == [len("look first"), len("nothing there")]
    done = await process.ask("peek", reasoning=Reasoning(budget=len("look first") + 3))
    assert (done.reasoning, done.text) == ("look firstnot", "None.")
    assert done.usage.reasoning == len("look firstnot")
    again = await process.ask("peek", "third", reasoning=Reasoning(budget=3))
    assert (again.reasoning, again.text) == ("loo", "None.")
