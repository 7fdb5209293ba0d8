"""The terminal: plans, live progress, rankings and status, as people read them."""
