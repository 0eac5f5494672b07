"""Pacing: names of measured rates, calibration, and what earlier runs teach."""
