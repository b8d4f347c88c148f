"""What a client's own configuration is to have, written where the client looks for it. The user has asked for it."""

import json
from pathlib import Path

from tenuto.runtime.terminal.config_files import jsonc
from tenuto.runtime.terminal.config_files.writing import change
from tenuto.runtime.terminal.launch.agent import Installed


def install(home: Path, made: Installed) -> list[str]:
    """Write it; what was done, in words.

    Raises:
        ConfigurationError: the file cannot be added to, or cannot be written.
    """
    path, text, merged = home / made.path, made.text, made.merged
    if merged is None:
        assert text is not None
        return change(path, lambda _: text, "remove it and try again")
    members = jsonc.leaves(merged)
    return change(path, lambda there: jsonc.with_members(there, members), f"add by hand: {json.dumps(merged)}")
