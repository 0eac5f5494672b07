"""Asks the Hugging Face Hub what a model is, before any of it is downloaded. No Qt, no torch."""
