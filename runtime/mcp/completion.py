"""How an argument of a prompt, or a part of a resource's URI, can go on. No transport."""

from collections.abc import Iterable, Mapping

import anyio.to_thread
import mcp.types as t

from tenuto.errors import NotFound
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.mcp import uris
from tenuto.runtime.mcp.prompt_files import PromptFiles
from tenuto.sessions.principal import Principal

MOST = 100
"""Values of one completion, as the protocol has it."""
_MOST_IDS = 500
"""The newest, among which ids are looked for."""


async def completed(
    files: PromptFiles, runner: LoopPort, principal: Principal, params: t.CompleteRequestParams
) -> t.CompleteResult:
    """What fits what has been begun, of what this principal may know. Raises NotFound."""
    begun, argument = params.argument.value, params.argument.name
    match params.ref:
        case t.PromptReference(name=name):
            prompt = await anyio.to_thread.run_sync(files.get, name)
            return _completion(
                begun, (value for each in prompt.arguments if each.name == argument for value in each.values)
            )
        case t.ResourceTemplateReference(uri=template):
            known = {} if params.context is None else params.context.arguments or {}
            return _completion(begun, await _ids(runner, principal, template, argument, known))
    return _completion(begun, ())


async def _ids(
    runner: LoopPort, principal: Principal, template: str, argument: str, known: Mapping[str, str]
) -> list[str]:
    match template, argument:
        case uris.MODEL_TEMPLATE, "id":
            return [each.id for each in runner.models.standings()]
        case ((uris.SESSION_TEMPLATE | uris.RUN_TEMPLATE), "id"):
            found = await runner.list_sessions(principal, implicit=False, limit=_MOST_IDS, after=None)
            return [each.id for each in found]
        case uris.RUN_TEMPLATE, "run" if "id" in known:
            try:
                return await runner.run_ids(principal, known["id"], limit=_MOST_IDS)
            except NotFound:
                return []
        case _:
            return []


def _completion(begun: str, values: Iterable[str]) -> t.CompleteResult:
    fitting = [value for value in values if value.lower().startswith(begun.lower())]
    kept = fitting[:MOST]
    return t.CompleteResult(completion=t.Completion(values=kept, total=len(fitting), has_more=len(fitting) > len(kept)))
