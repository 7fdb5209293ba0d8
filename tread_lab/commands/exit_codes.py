"""Exit codes of the commands and what each means; a `UserError` carries its own."""

DONE = 0
UNFINISHED = 1
INTERRUPTED = 130

EXIT_CODES = {
    DONE: "done",
    UNFINISHED: "some runs failed or lack a measurement, or a data set has faults",
    2: "a mistake; the line says what to correct",
    3: "the disk is full or the cluster is lost; run the same command again to continue",
    INTERRUPTED: "stopped by Ctrl-C or SIGTERM; run the same command again to continue",
}
