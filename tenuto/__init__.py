"""Tenuto: a server for local models that call tools. Importing it loads no backend."""

__version__ = "0.1.0"
