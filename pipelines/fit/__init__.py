"""How a GGUF model is fitted into the memory there is: the plan, and what goes into it."""

from tenuto.pipelines.fit.choice import plan
from tenuto.pipelines.fit.needs import weights_on
from tenuto.pipelines.fit.values import Device, Memory, Plan, Wishes

__all__ = ["Device", "Memory", "Plan", "Wishes", "plan", "weights_on"]
