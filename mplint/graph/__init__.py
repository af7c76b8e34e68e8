"""Model files as graphs: one form for every format, read as data and never run."""
