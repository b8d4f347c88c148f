"""Tenuto: an MCP-native agentic runtime server. Importing it loads no backend."""

__version__ = "0.1.0"
