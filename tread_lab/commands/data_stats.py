"""The data stats command: what is stored, class by class and channel by channel."""

from __future__ import annotations

from pathlib import Path

from tread_lab.commands.exit_codes import DONE
from tread_lab.data.source import open_store
from tread_lab.data.statistics import OURS, Statistics, write_statistics
from tread_lab.prepare.measure import measure
from tread_lab.prepare.pack import source_of
from tread_lab.records.durable import writing
from tread_lab.screen.console import say
from tread_lab.screen.data import show_measured


def run(*, path: Path, source: str | None, write: bool, as_json: bool) -> int:
    """Print what is stored, and write the statistics of its channels; return the exit code."""
    measured = measure(open_store(source or source_of(path), path))
    show_measured(measured, as_json=as_json)
    if write:
        folder = path if path.is_dir() else path.parent
        with writing(folder, ""):
            write_statistics(folder / OURS, Statistics(measured.mean_C, measured.deviation_C))
        say(f"{folder / OURS}: mean and deviation of each channel, for data.normalise=true")
    return DONE
