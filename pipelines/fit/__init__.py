"""How a GGUF model is fitted into the memory there is: the plan, and what goes into it."""

from tenuto.pipelines.fit.choice import plan
from tenuto.pipelines.fit.needs import PLAIN_TOKENS, most_drafts, weights_on
from tenuto.pipelines.fit.values import Device, Memory, Plan, Wishes

__all__ = ["PLAIN_TOKENS", "Device", "Memory", "Plan", "Wishes", "most_drafts", "plan", "weights_on"]
