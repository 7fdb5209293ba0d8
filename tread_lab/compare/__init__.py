"""Statistics on results: paired gaps, their intervals, and the set of best cells."""
