"""R10: first token and decode speed beside busy processes / the fair share of the machine.

With B busy processes on C cores the fair share is C / (C + B) of what is reached alone: of the speed, and of the
inverse of the time to the first token. Each question begins otherwise, so that nothing of it is cached. Servers stay,
and kinds, loads and repetitions are interleaved, so that what disturbs one disturbs all. An answer that takes longer
than `--limit` counts as one that took so long.

    python bench/busy_machine.py [--models embedded 135m] [--busy 2 10] [--questions 5] [--before CHECKOUT] [--quick]

`--before` names a checkout of another version to compare with (git worktree add ... COMMIT). The busy processes end by
themselves.
"""

import asyncio
import statistics
import sys
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.asking import SENTENCE, stream, user
from harness.models import MODELS, model_file
from harness.neighbours import busy
from harness.results import Measure, arguments
from harness.servers import cores, has_peer, llama_server, tenuto

GOAL, PEERS_GOAL, PEERS_SHARE = 0.8, 5.0, 0.15
TOKENS = 32
SENTENCES = 6
SCHEMA = {"type": "object", "properties": {"it": {"type": "string", "minLength": 4 * TOKENS}}, "required": ["it"]}
FORM = {"type": "json_schema", "json_schema": {"name": "long", "schema": SCHEMA}}


@dataclass(frozen=True)
class Found:
    """Of one answer: what it reaches of prompts and of tokens, each a second."""

    prompts_s: float
    tokens_s: float


def once(url: str, text: str, model: str, limit_s: float) -> Found:
    """One streamed answer of so many tokens. The embedded model is held to a long one; random weights do not end."""
    body: dict[str, Any] = {"messages": [user(text)], "max_tokens": TOKENS, "temperature": 0}
    if model == "embedded":
        body["response_format"] = FORM
    try:
        answer = asyncio.run(stream(url, body, wait_s=limit_s))
    except TimeoutError:
        return Found(1 / limit_s, TOKENS / limit_s)
    return Found(1 / answer.first_s, answer.tokens_s)


def report(measure: Measure, model: str, found: dict[tuple[str, int], list[Found]], kinds: list[str]) -> None:
    """Each kind's figures, and its parts of the fair share."""

    def median(kind: str, count: int, what: str) -> float:
        return float(statistics.median(getattr(each, what) for each in found[kind, count]))

    counts = sorted({count for _, count in found})
    for kind in kinds:
        for count in counts:
            first_ms, speed = 1000 / median(kind, count, "prompts_s"), median(kind, count, "tokens_s")
            measure.row(model=model, kind=kind, busy=count, first_ms=first_ms, tokens_s=speed)
    for count in counts[1:]:
        share = cores() / (cores() + count)
        for what, told in (("prompts_s", "first token"), ("tokens_s", "decode speed")):
            parts = {kind: median(kind, count, what) / (share * median(kind, 0, what)) for kind in kinds}
            for kind, part in parts.items():
                at_least = GOAL if kind == kinds[0] else None
                measure.figure(f"{model}, {count} busy: {told}, {kind} / its fair share", part, at_least=at_least)
            peer = parts.get("llama-server", 1.0)
            if peer < PEERS_SHARE:
                ratio = median(kinds[0], count, what) / median("llama-server", count, what)
                measure.figure(f"{model}, {count} busy: {told} / llama-server's", ratio, at_least=PEERS_GOAL)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--models", choices=MODELS, nargs="+", default=["embedded", "135m"])
    parser.add_argument("--before", type=Path, help="a checkout of another version")
    parser.add_argument("--busy", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--questions", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that one answer may take")
    given = parser.parse_args()
    if given.quick:
        given.questions, given.limit = 2, 20.0
    measure = Measure("R10", f"beside busy processes / the fair share of {cores()} cores", given.quick)
    is_compared = has_peer()
    for model in given.models:
        found: dict[tuple[str, int], list[Found]] = defaultdict(list)
        file = model_file(model)
        flags = ("--default-tools", "none", "--slots", "2", "--context", "2048")
        with ExitStack() as stack:
            servers = [stack.enter_context(tenuto(file, *flags))]
            if given.before:
                tree = given.before.resolve()
                servers.append(stack.enter_context(tenuto(file, *flags, checkout=tree, name="before")))
            if is_compared:
                servers.append(stack.enter_context(llama_server(file, slots=2, cells=2048)))
            for server in servers:
                once(server.url, "Are you there?", model, given.limit)
            for question in range(given.questions):
                for count in (0, *given.busy):
                    with busy(count):
                        for server in servers:
                            text = f"Story {question} beside {count}. {SENTENCE * SENTENCES}"
                            found[server.name, count].append(once(server.url, text, model, given.limit))
            report(measure, model, found, [server.name for server in servers])
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
