"""One run, start to finish: assemble, train, measure, account."""
