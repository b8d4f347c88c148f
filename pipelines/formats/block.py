"""A block: where calls stand in a turn, what opens and closes it and each of them. Plain facts, and their grammar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenuto.pipelines.formats.base import CallBody, Schemas
from tenuto.pipelines.formats.lark import Rules, in_order
from tenuto.sessions.items import JsonObject


@dataclass(frozen=True, slots=True)
class Block:
    """Texts are as the model was trained on them; white space at their ends may be other than that when it is read.

    Each may be empty: a block that nothing opens begins with its first call, a call that nothing closes ends with its
    body, and a block without any opener is found at the beginning of a turn alone.
    """

    body: CallBody
    opener: str = ""
    call_open: str = ""
    call_close: str = ""
    separator: str = ""
    """Between two calls of the block."""
    closer: str = ""
    listed: bool = False
    """Whether the calls are the members of a list in square brackets."""
    bracketed: bool = False
    """Whether the opener alone shows nothing: only with the list's bracket behind it."""
    padding: tuple[str, str] = ("", "")
    """Inside of the brackets."""
    between: str = "\n"
    """Between two blocks, where each has one call."""
    behind: str = ""
    """What has to stand behind the opener and a name, where the opener is ordinary text too."""
    others: tuple[str, ...] = ()
    """Names there that are none of tools."""
    chained: bool = False
    """Whether more calls may follow one that nothing opens."""
    held: bool = True
    """Whether a free turn is watched for it: else it is read as the model has written it."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts in which markers may stand."""
        glue = (self.opener, self.call_open, self.call_close, self.separator, self.closer, self.between, self.behind)
        return (*glue, *self.body.texts)

    @property
    def start(self) -> str:
        """The text that shows that calls begin; empty where there is none but their own."""
        return (self.opener or self.call_open).strip() + "[" * self.bracketed

    @property
    def gathers(self) -> bool:
        """Whether one block holds all the calls of a turn."""
        return self.listed or bool(self.closer)

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Whether a text without an opener begins calls of these tools; None where it cannot be told yet."""
        if self.listed:
            if not text.startswith("["):
                return False
            text = text[1:]
        return self.body.begins(text, schemas)

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """With which texts calls of these tools begin, where nothing else opens them."""
        return [f"[{head}" if self.listed else head for head in self.body.heads(names)]

    def openers(self, names: Sequence[str]) -> Sequence[str]:
        """The texts that show that calls of these tools begin, where something opens them."""
        if not self.start:
            return ()
        return [f"{self.start}{name}{self.behind}" for name in names] if self.behind else [self.start]

    def unit(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool, begun: bool = False) -> str:
        """Lark for one block; `begun`: after the text that shows that calls begin."""
        if not self.gathers:
            opener = self._after_start(self.call_open, begun)
            call = self.body.rule(rules, tools)
            return in_order(rules.text(opener), call, rules.text(self.call_close))
        opener = self._after_start(self.opener, begun) if self.opener else ""
        first = self._after_start(self.call_open, begun) if not self.opener else self.call_open
        inner = rules.add("call_body", in_order(self.body.rule(rules, tools), rules.text(self.call_close)))
        more = f"( {in_order(rules.text(self.separator + self.call_open), inner)} )*" if parallel else ""
        if self.listed:
            begin, end = self.padding
            first, closer = f"[{begin}{first}", f"{end}]{self.closer}"
        else:
            closer = self.closer
        return in_order(rules.text(opener + first), inner, more, rules.text(closer))

    def _after_start(self, text: str, begun: bool) -> str:
        return text.removeprefix(text[: len(text) - len(text.lstrip())] + self.start) if begun else text

    def whole(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool) -> str:
        """Lark for all calls of a turn."""
        unit = rules.add("block", self.unit(rules, tools, parallel=parallel))
        if self.gathers or not parallel or not (self.start or self.chained):
            return unit
        return in_order(unit, f"( {in_order(rules.text(self.between), unit)} )*")
