"""TensorBoard's event files as a view of the records: curves, parameters, tags as text."""

from __future__ import annotations

from pathlib import Path

from tensorboardX.event_file_writer import EventFileWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import hparams, text

from tread_lab.tracking.folder_tracker import numbers_of
from tread_lab.tracking.projection import View


def write_events(folder: Path, sweep: str, view: View) -> None:
    """Write one event file; TensorBoard stores values as fp32."""
    writer = EventFileWriter(str(folder))
    numbers = numbers_of(view)
    params = {"sweep": sweep, **view.params, **view.tags}
    lines = [f"| {name} | {value} |" for name, value in params.items()]
    table = "\n".join(["| | |", "|---|---|", *lines])
    summaries = [*hparams(dict(view.params), {n.key: n.value for n in numbers}), text("run", table)]
    started = view.started / 1000
    for summary in summaries:
        writer.add_event(Event(wall_time=started, summary=summary))
    for number in numbers:
        value = Summary.Value(tag=number.key, simple_value=number.value)
        summary = Summary(value=[value])
        writer.add_event(Event(wall_time=number.time / 1000, step=number.step, summary=summary))
    writer.close()
