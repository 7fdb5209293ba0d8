"""`python -m tread_lab` is `tread-lab`."""

from tread_lab.cli.main import run

run()
