"""Tools: what they are, the built-in ones, those of MCP servers, and who may call them. No model, no HTTP."""
