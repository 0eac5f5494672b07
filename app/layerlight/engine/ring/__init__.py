"""Layers read from disk ahead of the pass that needs them, round and round through a few buffers."""
