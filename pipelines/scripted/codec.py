"""The codec of a script whose calls nothing holds to their form."""

from collections.abc import Sequence

from tenuto.pipelines.base import GrammarSource, ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.sessions.items import JsonObject, ToolSpec


class LooseCodec(TemplateCodec):
    """Reads the calls that a model makes by itself as they are. Those that are required are held all the same."""

    def grammar(
        self, tools: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool, answer: JsonObject | None = None
    ) -> GrammarSource | None:
        """None where calls may be made, and need not be."""
        if choice is ToolChoice.AUTO and answer is None:
            return None
        return super().grammar(tools, choice, parallel=parallel, answer=answer)

    def unenforced(self, tools: Sequence[ToolSpec], *, parallel: bool) -> tuple[str, ...] | None:
        """Nothing: there is no grammar to say so of."""
        del tools, parallel
        return ()
