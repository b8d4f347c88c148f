"""Pictures of what we list, for clients that show them: small SVG files inside their URLs, so nothing is fetched."""

from functools import cache
from typing import Literal
from urllib.parse import quote

import mcp.types as t

Picture = Literal["server", "chat", "session", "run", "model", "prompt"]

_PATHS: dict[Picture, str] = {
    "server": "M4 9a8 8 0 0 1 16 0M3 14h18M12 14v6",
    "chat": "M4 5h16v11H9l-5 4z",
    "session": "M6 3h9l3 3v15H6zM9 10h6M9 14h6",
    "run": "M7 4l12 8-12 8z",
    "model": "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
    "prompt": "M5 7l5 5-5 5M12 18h7",
}


@cache
def icon(picture: Picture) -> t.Icon:
    """One of them, drawn by a grey line that is seen on light and on dark."""
    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='#777' stroke-width='2'"
        f" stroke-linejoin='round'><path d='{_PATHS[picture]}'/></svg>"
    )
    return t.Icon(src=f"data:image/svg+xml,{quote(svg)}", mime_type="image/svg+xml", sizes=["any"])
