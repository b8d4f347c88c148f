"""What the first request of a newly loaded model costs, and what the second and third one do: medians, by form.

Every question begins otherwise, so that none is answered from the cache of the one before; all share the tool block.

    python bench/first_request.py
    python bench/first_request.py --model bench/out/random-120m-q8_0.gguf --rounds 5
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from tenuto.pipelines.finding import model_id

QUESTIONS = ("Now what is 3 times 4?", "Tell me: 3 times 4 is?", "I ask: 3 times 4 makes?")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
ANSWER = {"type": "json_schema", "json_schema": {"name": "answer", "schema": CITY}}
FORMS: dict[str, dict[str, Any]] = {
    "default tools": {},
    "own tool": {"tools": [WEATHER]},
    "own tool, required": {"tools": [WEATHER], "tool_choice": "required"},
    "schema": {"response_format": ANSWER, "tool_choice": "none"},
}


def timed(http: httpx.Client, path: str, body: dict[str, Any] | None = None) -> float:
    """How many milliseconds an answer takes."""
    began = time.monotonic()
    http.post(path, json=body or {}).raise_for_status()
    return 1000 * (time.monotonic() - began)


def measure(http: httpx.Client, model: str, rounds: int) -> None:
    """Print a line for each form."""
    for form, more in FORMS.items():
        took: dict[str, list[float]] = defaultdict(list)
        for turn in range(rounds):
            http.post(f"/v1/models/{model}/unload").raise_for_status()
            took["load"].append(timed(http, f"/v1/models/{model}/load"))
            for place in range(len(QUESTIONS)):
                said = [{"role": "user", "content": QUESTIONS[(place + turn) % len(QUESTIONS)]}]
                body = {"model": model, "messages": said, "max_tokens": 4, **more}
                took[f"request {place + 1}"].append(timed(http, "/v1/chat/completions", body))
        print(f"{form:20}", *(f"{what}: {statistics.median(each):.0f} ms " for what, each in took.items()))


def main() -> None:
    """Start a server and ask it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rounds", type=int, default=9)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w") as log:
        words = ["--model", wanted.model, "--load", "request", "--port", "0", "--data-dir", f"{folder}/data"]
        command = [sys.executable, "-m", "tenuto", "serve", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().removeprefix("tenuto ready on ").strip()
            try:
                with httpx.Client(base_url=url, timeout=300) as http:
                    http.post(f"/v1/models/{model_id(wanted.model)}/load").raise_for_status()
                    measure(http, model_id(wanted.model), wanted.rounds)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
