"""What a server on stdio may reach, by the `sandbox` of its entry in the `mcpServers` file. Pure.

"sandbox": true
"sandbox": {"network": true, "read": ["~/papers"], "write": ["~/notes"]}
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

HOMES = "mcp-homes"
"""In the data folder: a folder for each server that has a sandbox, which it keeps."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What it reaches besides the system's own programs, which it can read. `home` is its own folder."""

    network: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    home: Path | None = None

    def kept_in(self, data_dir: Path, server: str) -> "Sandbox":
        """The same, with its own folder in a data folder."""
        return Sandbox(self.network, self.read, self.write, data_dir / HOMES / server)


class SandboxEntry(BaseModel):
    """As the file has it."""

    model_config = ConfigDict(extra="forbid")

    network: bool = False
    read: list[str] = []
    write: list[str] = []


def sandbox(entry: SandboxEntry | bool, expand: Callable[[str, str], str]) -> Sandbox | None:
    """What an entry says. `expand` is given a field's name and its value, and replaces variables.

    Raises:
        ValueError: a folder is not named from the root.
    """
    if entry is False:
        return None
    said = SandboxEntry() if entry is True else entry
    read = tuple(expand(f"sandbox.read.{index}", each) for index, each in enumerate(said.read))
    write = tuple(expand(f"sandbox.write.{index}", each) for index, each in enumerate(said.write))
    for folder in (*read, *write):
        if not Path(folder).expanduser().is_absolute():
            raise ValueError(f"the folder {folder!r} must begin with / or ~")
    return Sandbox(said.network, read, write)
