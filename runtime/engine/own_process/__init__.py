"""An engine in a process of its own: what a native library does there ends that process alone, which is begun again."""

from tenuto.runtime.engine.own_process.engine import EngineProcess
from tenuto.runtime.engine.own_process.line import NotForText
from tenuto.runtime.engine.own_process.order import Opened, Order

__all__ = ["EngineProcess", "NotForText", "Opened", "Order"]
