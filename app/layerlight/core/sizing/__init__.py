"""Sizing: bytes of the KV cache, of states and of the work of a pass."""
