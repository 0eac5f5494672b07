"""Layers brought to an accelerator ahead of the pass that needs them, from RAM and from disk."""
