"""Layerlight runs models on the machine you have and shows where every layer lives."""

__version__ = "0.1.0"
