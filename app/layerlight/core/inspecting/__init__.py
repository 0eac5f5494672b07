"""Inspecting: what lies in a model folder, file by file, read without torch and without a weight."""
