"""Planning: units and rooms, what a person asked for, and the search for the fastest placement."""
