"""What the model calls at the servers of others, and what it must read then."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = "Held for its full value."
THOUGHT = {"thought": "It holds.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
DATA = "data:text/plain;base64,aGVsZA=="
EVERYTHING = ("everything", "http", "sse")


@dataclass(frozen=True)
class Call:
    """A call of a server's tool, and what must stand in its result."""

    server: str
    tool: str
    arguments: dict[str, Any]
    expected: str

    @property
    def exported(self) -> str:
        """The name that the model knows."""
        return f"{self.server}__{self.tool}"


def cases(folder: Path, page: str) -> dict[str, Call]:
    """All calls by name. Those of the memory server build on each other."""
    zones = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"}
    ann = {"name": "Ann", "entityType": "person", "observations": ["plays the piano"]}
    files = folder / "files"
    calls = {
        "convert": Call("time", "convert_time", zones, "T08:30:00+05:30"),
        "log": Call("git", "git_log", {"repo_path": str(folder / "repository")}, "First light"),
        "status": Call("git", "git_status", {"repo_path": str(folder / "repository")}, "working tree clean"),
        "fetch": Call("fetch", "fetch", {"url": page}, PAGE),
        "read": Call("filesystem", "read_text_file", {"path": str(files / "old.txt")}, "held"),
        "write": Call(
            "filesystem", "write_file", {"path": str(files / "new.txt"), "content": "let go"}, "Successfully"
        ),
        "learn": Call("memory", "create_entities", {"entities": [ann]}, "plays the piano"),
        "recall": Call("memory", "search_nodes", {"query": "piano"}, '"name": "Ann"'),
        "think": Call("thinking", "sequentialthinking", THOUGHT, '"thoughtHistoryLength": 1'),
        "make": Call("sqlite", "create_table", {"query": "CREATE TABLE notes (text TEXT)"}, "Table created"),
        "keep": Call("sqlite", "write_query", {"query": "INSERT INTO notes VALUES ('held')"}, "'affected_rows': 1"),
        "query": Call("sqlite", "read_query", {"query": "SELECT text FROM notes"}, "held"),
    }
    for server in ("fastmcp2", "fastmcp4", "fastmcp4-before"):
        calls |= {
            f"{server}-add": Call(server, "add", {"a": 20, "b": 22}, "42"),
            f"{server}-count": Call(server, "count", {"to": 3}, "counted to 3"),
            f"{server}-ask": Call(server, "ask_model", {"question": "capital?"}, "Paris"),
            f"{server}-greet": Call(server, "greet", {}, "Hello, Ann."),
        }
    for server in EVERYTHING:
        calls |= {
            f"{server}-echo": Call(server, "echo", {"message": "grüß dich"}, "Echo: grüß dich"),
            f"{server}-sum": Call(server, "get-sum", {"a": 20, "b": 22}, "42"),
            f"{server}-image": Call(server, "get-tiny-image", {}, "[image: image/png, "),
            f"{server}-structured": Call(server, "get-structured-content", {"location": "Chicago"}, '"temperature"'),
            f"{server}-annotated": Call(server, "get-annotated-message", {"messageType": "success"}, "successfully"),
            f"{server}-env": Call(server, "get-env", {}, '"PATH"'),
            f"{server}-links": Call(server, "get-resource-links", {"count": 2}, "demo://resource/dynamic/"),
            f"{server}-reference": Call(server, "get-resource-reference", {"resourceId": 1}, "Resource 1"),
            f"{server}-gzip": Call(server, "gzip-file-as-resource", {"data": DATA}, "demo://resource/session/"),
            f"{server}-long": Call(
                server, "trigger-long-running-operation", {"duration": 0.2, "steps": 2}, "completed"
            ),
            f"{server}-logging": Call(server, "toggle-simulated-logging", {}, "simulated"),
            f"{server}-updates": Call(server, "toggle-subscriber-updates", {}, "simulated"),
            f"{server}-sample": Call(
                server, "trigger-sampling-request", {"prompt": "capital?", "maxTokens": 20}, "Paris"
            ),
            f"{server}-roots": Call(server, "get-roots-list", {}, folder.as_uri()),
            f"{server}-research": Call(server, "simulate-research-query", {"topic": "pianos"}, "pianos"),
            f"{server}-form": Call(server, "trigger-elicitation-request", {}, "Ann"),
            f"{server}-page": Call(server, "trigger-url-elicitation", {"url": page}, "accept"),
        }
    return calls
