"""Tests of the ring that reads layers ahead."""
