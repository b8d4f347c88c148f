"""What every run uses and none owns: store, models, tools and their policy, clock. Composition, no logic."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tenuto.runtime.loop.expectations import Expectations
from tenuto.runtime.loop.held_calls import HeldCalls
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.policy import Policy
from tenuto.runtime.loop.sharing import SharedPrefixes
from tenuto.runtime.metrics import Metrics
from tenuto.sessions.directory import Directory
from tenuto.sessions.storage.store import Store
from tenuto.tools.egress import Egress
from tenuto.tools.host.requested import RequestedServers
from tenuto.tools.offering import Offering
from tenuto.tools.registry import Registry


@dataclass(frozen=True, slots=True)
class Expiries:
    """How long a pause waits, in seconds."""

    client_tool_s: float = 24 * 3600.0
    approval_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Services:
    """What every run uses and none owns."""

    store: Store
    directory: Directory
    models: Models
    registry: Registry
    policy: Policy
    metrics: Metrics
    expiries: Expiries
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    shared_prefixes: SharedPrefixes = field(default_factory=SharedPrefixes)
    requested: RequestedServers = field(default_factory=partial(RequestedServers, Egress.OFF))
    held: HeldCalls = field(default_factory=HeldCalls)
    expectations: Expectations = field(default_factory=Expectations)
    offering: Offering = field(default_factory=Offering)
    """What the configured servers have besides tools."""
    caches_on_disk: Path | None = None
    """Where engines keep caches over restarts; None: nowhere."""
