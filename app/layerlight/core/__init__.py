"""Decides: plain values and pure functions. No Qt, no torch."""
