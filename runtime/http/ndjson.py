"""A stream of JSON, a line for each value, which watches its client as one of server-sent events does.

Knows no dialect. https://github.com/ndjson/ndjson-spec
"""

from tenuto.runtime.http.sse import EventStream

MEDIA_TYPE = "application/x-ndjson"


class LineStream(EventStream):
    """Sends lines as they come. What keeps it alive is a line too: clients do not expect empty ones."""

    media_type = MEDIA_TYPE
