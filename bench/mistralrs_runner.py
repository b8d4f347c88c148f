"""What bench/chat_speed.py runs in the environment of mistral.rs: chats at once, from a job on stdin, to one line."""

import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def main() -> None:
    job = json.load(sys.stdin)
    os.environ["RAYON_NUM_THREADS"] = str(job["threads"])
    from mistralrs import ChatCompletionRequest, Runner, Which  # its number of threads is read when it is imported

    path = Path(job["model"])
    runner = Runner(which=Which.GGUF(str(path.parent), path.name), max_seqs=32)

    def ask(text: str, tokens: int) -> tuple[float, list[float], Any]:
        request = ChatCompletionRequest(
            model="default",
            messages=[{"role": "user", "content": text}],
            max_tokens=tokens,
            temperature=0.0,
            stream=True,
        )
        began, times, usage = time.perf_counter(), list[float](), None
        for chunk in runner.send_chat_completion_request(request):
            times.append(time.perf_counter())
            usage = getattr(chunk, "usage", None) or usage
        return began, times, usage

    ask("Are you there?", 4)
    texts = job["texts"]
    with ThreadPoolExecutor(len(texts)) as clients:
        answers = list(clients.map(lambda text: ask(text, job["tokens"]), texts))
    began = min(each[0] for each in answers)
    firsts = [times[0] for _, times, _ in answers]
    prompts = sum(usage.prompt_tokens for *_, usage in answers)
    decode = sum((usage.completion_tokens - 1) / max(times[-1] - times[0], 1e-9) for _, times, usage in answers)
    first_s = statistics.median(times[0] - began for began, times, _ in answers)
    told = {"prefill": prompts / (max(firsts) - began), "decode": decode, "first_s": first_s}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
