"""`python -m tread_lab` is `tread-lab`."""

from tread_lab.cli import run

run()
