"""The commands of tread-lab: one module each, with its typed `Options` and its `run`."""
