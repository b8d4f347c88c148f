"""R6, the whole server: chats of 1 to 32 clients at once, over HTTP, / llama-server's with the same file and cache.

Each client streams the answer to a question of its own. Prefill: the tokens of all questions until the last client has
its first token. Decode: the sum of what each client gets a second from its first token to its last. mistral.rs joins
where `bench/peers.sh mistralrs` has put its wheel: that has no server, so it is called in its process, which spares it
HTTP. (mlx_lm.server reads no GGUF; bench/mlx_speed.py compares it with the MLX pipeline.) Kinds are interleaved.

    python bench/chat_speed.py [--models 125m] [--clients 1 4 8 16 32] [--runs 3] [--quick]
"""

import asyncio
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.asking import Answer, stream, text_of, user
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import ROOT, cores, has_peer, llama_server, tenuto

GOAL = 1.0
QUESTION, TOKENS, CELLS = 128, 64, 512
MISTRALRS = ROOT / "bench/peers/mistralrs/bin/python"
RUNNER = Path(__file__).with_name("mistralrs_runner.py")
PEER_S = 300.0


@dataclass(frozen=True)
class Speed:
    """Tokens a second of all clients together, and the median of their first tokens, in seconds."""

    prefill: float
    decode: float
    first_s: float


async def chats(url: str, texts: list[str]) -> Speed:
    """All of these at once."""
    asked = {"max_tokens": TOKENS, "temperature": 0}
    answers = await asyncio.gather(*(stream(url, {**asked, "messages": [user(text)]}) for text in texts))
    return together(answers)


def together(answers: list[Answer]) -> Speed:
    began = min(answer.began for answer in answers)
    prompts = sum(answer.usage["prompt_tokens"] for answer in answers)
    first = max(answer.pieces[0] for answer in answers) - began
    return Speed(
        prefill=prompts / first,
        decode=sum(answer.tokens_s for answer in answers),
        first_s=statistics.median(answer.first_s for answer in answers),
    )


def mistralrs(model: Path, texts: list[str]) -> Speed:
    """The same in a process of mistral.rs, whose model is loaded before."""
    job = {"model": str(model), "texts": texts, "tokens": TOKENS, "threads": cores()}
    command = [str(MISTRALRS), str(RUNNER)]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, timeout=PEER_S)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return Speed(**json.loads(done.stdout.splitlines()[-1]))


def report(measure: Measure, model: str, clients: int, speeds: dict[str, list[Speed]]) -> None:
    for kind, found in speeds.items():
        figures = {
            name: statistics.median(getattr(each, name) for each in found) for name in ("prefill", "decode", "first_s")
        }
        measure.row(model=model, clients=clients, kind=kind, **figures)
    for peer in [kind for kind in speeds if kind != "tenuto"]:
        for what in ("decode", "prefill"):
            pairs = zip(speeds["tenuto"], speeds[peer], strict=True)
            ratio = statistics.median(getattr(one, what) / getattr(other, what) for one, other in pairs)
            at_least = GOAL if peer == "llama-server" else None
            measure.figure(f"{model}, clients: {clients}: {what}, server / {peer}", ratio, at_least=at_least)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--models", choices=MODELS, nargs="+", default=["125m", "embedded"])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    if given.quick:
        given.models, given.clients, given.runs = given.models[:1], [1, 8, 16], 1
    measure = Measure("R6", "chats over HTTP: speed / the peers'", given.quick)
    kinds = ["tenuto", *(["llama-server"] if has_peer() else []), *(["mistralrs"] if MISTRALRS.exists() else [])]
    if "mistralrs" not in kinds:
        measure.note("without mistral.rs: it is not installed (bench/peers.sh mistralrs)")
    for model in given.models:
        slots = max(given.clients)
        flags = ("--default-tools", "none", "--slots", str(slots), "--context", str(CELLS))
        with ExitStack() as stack:
            urls = {"tenuto": stack.enter_context(tenuto(model_file(model), *flags)).url}
            if "llama-server" in kinds:
                peer = llama_server(model_file(model), slots=slots, cells=CELLS)
                urls["llama-server"] = stack.enter_context(peer).url
            for url in urls.values():
                asyncio.run(chats(url, ["Are you there?"]))
            text = text_of(urls["tenuto"], QUESTION)
            for clients in given.clients:
                speeds: dict[str, list[Speed]] = {kind: [] for kind in kinds}
                for run in range(given.runs):
                    texts = [f"{run}, {client} of {clients}: {text}" for client in range(clients)]
                    for kind in list(speeds):
                        if kind in urls:
                            speeds[kind].append(asyncio.run(chats(urls[kind], texts)))
                            continue
                        try:
                            speeds[kind].append(mistralrs(model_file(model), texts))
                        except (RuntimeError, subprocess.TimeoutExpired) as error:
                            measure.note(f"without mistral.rs, {model}, {clients} clients: {error}")
                            del speeds[kind]
                report(measure, model, clients, speeds)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
