"""Exit codes of the commands; a `UserError` carries its own."""

DONE = 0
UNFINISHED = 1  # some runs failed, or lack a measurement
INTERRUPTED = 130
