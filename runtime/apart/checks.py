"""Holding the arguments of calls to their tools' schemas, wherever that takes no longer than it may."""

from typing import Any

from tenuto.runtime.apart.pool import Pool
from tenuto.tools.validate import is_cheap, problems

CHECK_S = 2.0


class ArgumentChecks:
    """Checks at once what is known to be cheap, and everything else apart, with a deadline. Event-loop thread only."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __call__(self, schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
        """What is wrong with the arguments, in words.

        Raises:
            TookTooLong: it cannot be told in time.
        """
        if is_cheap(schema, arguments):
            return problems(schema, arguments)
        return await self._pool.do("checking them against the schema", problems, schema, arguments, seconds=CHECK_S)
