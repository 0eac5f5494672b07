"""Shows: the window. PySide6 only, never torch."""
