"""R1: tokens computed over tokens that are new, in a session of 20 tool calls, through the server as users get it.

Usage: python bench/resume_cost.py [--model embedded ...]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from server import OwnServer  # the examples' own server process

CALLS = 20
GOAL = 1.02
RULES = [
    {
        "user_matches": r"What is (?P<sum>\d+ \+ \d+)",
        "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "${sum}"}}],
    },
    {"tool_contains": "", "text": "It is ${tool}."},
]


def session(url: str) -> list[dict[str, Any]]:
    """Twenty turns with a forced call each; the figures of all rounds."""
    rounds: list[dict[str, Any]] = []
    forced = {"type": "function", "function": {"name": "calculator__evaluate"}}
    with httpx.Client(base_url=url, timeout=120) as client:
        for number in range(CALLS):
            body = {
                "session_id": "r1",
                "messages": [{"role": "user", "content": f"What is {number} + {number + 7}?"}],
                "tool_choice": forced,
                "parallel_tool_calls": False,
                "max_tokens": 120,
            }
            answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            assert len(answer["agentic_tool_calls"]) == 1, answer
            rounds += answer["usage"]["tenuto"]["rounds"]
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", nargs="+", default=["scripted", "embedded"])
    given = parser.parse_args()
    failed = False
    for name in given.model:
        with tempfile.TemporaryDirectory() as folder:
            model = name
            if name == "scripted":
                script = Path(folder) / "script.json"
                script.write_text(json.dumps({"rules": RULES, "cells": 65536}))
                model = f"scripted:{script}"
            with OwnServer(Path(folder) / "data", "--model", model) as server:
                rounds = session(server.url)
        computed, new = (sum(usage[key] for usage in rounds) for key in ("computed_tokens", "new_tokens"))
        failed |= computed / new > GOAL
        print(f"{name}: {CALLS} calls in {len(rounds)} rounds, {computed} computed / {new} new = {computed / new:.4f}")
    sys.exit(f"R1 is above {GOAL}" if failed else 0)


if __name__ == "__main__":
    main()
