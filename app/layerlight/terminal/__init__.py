"""Says everything in a terminal: the answer on stdout, the rest on stderr."""
