import asyncio

from tenuto.runtime.engine.engine import Outlet
from tenuto.runtime.engine.messages import EngineStatus, Report


def test_events_for_a_loop_that_is_closed_are_dropped() -> None:
    async def make() -> Outlet:
        return Outlet(lambda report: None, lambda: None)

    outlet = asyncio.run(make())
    outlet.report(Report([], EngineStatus()))
    outlet.end()
