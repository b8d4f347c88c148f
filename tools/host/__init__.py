"""Connections to MCP servers: each in a task of its own, started again after a crash, no burden to the others."""

from tenuto.tools.host.callbacks import ClientCallbacks
from tenuto.tools.host.host import Host
from tenuto.tools.host.server import McpServer
from tenuto.tools.host.state import Failure, ServerState, Status

__all__ = ["ClientCallbacks", "Failure", "Host", "McpServer", "ServerState", "Status"]
