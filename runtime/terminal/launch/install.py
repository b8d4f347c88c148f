"""What a client's own configuration is to have, written where the client looks for it. The user has asked for it."""

import json
from pathlib import Path

from tenuto.runtime.terminal.client_files import jsonc, writing
from tenuto.runtime.terminal.client_files.changes import in_json, whole
from tenuto.runtime.terminal.launch.agent import Installed


def install(home: Path, made: Installed) -> list[str]:
    """Write it; what was done, in words.

    Raises:
        ConfigurationError: the file cannot be added to, or cannot be written.
    """
    if made.merged is None:
        assert made.text is not None
        return writing.change(home / made.path, whole(made.text), "remove it and try again")
    change = in_json(jsonc.leaves(made.merged))
    return writing.change(home / made.path, change, f"add by hand: {json.dumps(made.merged)}")
