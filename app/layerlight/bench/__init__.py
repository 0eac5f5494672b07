"""Measures: each `layerlight bench NAME` is one module with its bounds."""
