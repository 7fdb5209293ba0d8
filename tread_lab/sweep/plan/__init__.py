"""The plan of a sweep: its trials, what changes in it, and a forecast of time and disk."""
