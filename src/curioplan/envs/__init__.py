"""Environments and their task descriptions."""
