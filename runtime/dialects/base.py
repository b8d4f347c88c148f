"""What a dialect is made of: the services that each is given, and what makes one of them. No dialect."""

from collections.abc import Callable
from dataclasses import dataclass

from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.pulls import Pulls


@dataclass(frozen=True, slots=True)
class DialectServices:
    """What a dialect may use. `keep_alive_s`: after so long a silence a stream says that it is still there."""

    runner: LoopPort
    pulls: Pulls
    keep_alive_s: float = 15.0


MakeDialect = Callable[[DialectServices], Dialect]
