"""Does: all torch work, in a process of its own. No Qt."""
