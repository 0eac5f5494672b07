"""Stands in for pip in tests: put its folder on PYTHONPATH."""
