"""R2: the first token of a session's next turn / of the same conversation where nothing of it is cached.

For each length, a session is led to so many tokens, and its next turn is streamed; then a conversation of the same
length with another beginning, all at once. llama-server is asked the same, with its own cache of prompts.

    python bench/resume_latency.py [--models embedded 135m] [--tokens 4096 16384] [--runs 3] [--quick]
"""

import asyncio
import statistics
import sys
from dataclasses import dataclass, field

from harness.asking import ask, stream, text_of, user
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import Running, has_peer, llama_server, tenuto

GOAL = 0.05
MOST = {"embedded": 4096}
"""What a model has been made for, where that is less."""
FEW = 4096
"""Beyond so many tokens each case is measured once: it takes minutes."""
ROOM = 256
NEXT = "And then?"


@dataclass
class Times:
    """Seconds to the first token, and tokens of the prompts."""

    resumed: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    tokens: int = 0

    @property
    def ratio(self) -> float:
        return statistics.median(self.resumed) / statistics.median(self.cold)


def once(server: Running, tokens: int, run: int, times: Times) -> None:
    """A session that goes on, and a conversation that is computed from its beginning."""
    asked = {"max_tokens": 8, "temperature": 0}
    text = text_of(server.url, tokens - ROOM, beginning=f"Story {run} of {tokens}. ")
    told = ask(server.url, {**asked, "messages": [user(text)]})
    said = {"role": "assistant", "content": told["choices"][0]["message"]["content"]}
    history = [user(text), said, user(NEXT)]
    resumed = asyncio.run(stream(server.url, {**asked, "messages": history}))
    other = [user(f"Another, {run} of {tokens}. {text}"), said, user(NEXT)]
    cold = asyncio.run(stream(server.url, {**asked, "messages": other}))
    times.resumed.append(resumed.first_s)
    times.cold.append(cold.first_s)
    times.tokens = cold.usage["prompt_tokens"]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--models", choices=MODELS, nargs="+", default=["embedded", "135m"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 16_384])
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    if given.quick:
        given.tokens = given.tokens[:1]
    measure = Measure("R2", "the first token of a session's next turn / with nothing cached", given.quick)
    is_compared = has_peer()
    for model in given.models:
        for tokens in given.tokens:
            if tokens > MOST.get(model, tokens):
                measure.note(f"{model} is not made for {tokens} tokens")
                continue
            ours, theirs = Times(), Times()
            cells = tokens if tokens == MOST.get(model) else tokens + 512
            flags = ("--slots", "2", "--context", str(cells), "--default-tools", "none")
            for run in range(given.runs if tokens <= FEW else 1):
                with tenuto(model_file(model), *flags) as server:
                    once(server, tokens, run, ours)
                if is_compared:
                    with llama_server(model_file(model), slots=2, cells=cells) as server:
                        once(server, tokens, run, theirs)
            for name, times in (("tenuto", ours), ("llama-server", theirs)):
                if times.cold:
                    resumed, cold = statistics.median(times.resumed), statistics.median(times.cold)
                    case = {"model": model, "kind": name, "tokens": times.tokens}
                    measure.row(**case, resumed_ms=1000 * resumed, cold_ms=1000 * cold, ratio=times.ratio)
            measure.figure(f"{model}, {tokens} tokens: resumed / cold", ours.ratio, at_most=GOAL)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
