"""Machines: this one's memory, described ones, and the models one may have there."""
