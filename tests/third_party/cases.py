"""What the model calls at the servers of others, and what it must read then."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = "Held for its full value."


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
    }
    for server in ("everything", "http", "sse"):
        calls |= {
            f"{server}-echo": Call(server, "echo", {"message": "grüß dich"}, "Echo: grüß dich"),
            f"{server}-sum": Call(server, "get-sum", {"a": 20, "b": 22}, "42"),
            f"{server}-image": Call(server, "get-tiny-image", {}, "[image: image/png, "),
            f"{server}-structured": Call(server, "get-structured-content", {"location": "Chicago"}, '"temperature"'),
        }
    return calls
