"""Trackers with a folder for each trial, written anew where records changed: TensorBoard, W&B."""

from __future__ import annotations

import itertools
import re
import shutil
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from tread_lab.frames import Memory
from tread_lab.records.durable import read_json, write_json, writing
from tread_lab.records.lab import Lab
from tread_lab.records.locks import exclusive
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError
from tread_lab.tracking.projection import Number, Projection, ShownTrial, View, trials_of
from tread_lab.tracking.tracker import SyncReport

_SENT = "sent.json"  # in the folder of a trial: the fingerprint of what it shows
Write = Callable[[Path, str, View], None]  # folder, name of the sweep, what is shown


class FolderTracker:
    """Makes `<lab>/<name>/<sweep>/<trial>` show the records; what has not changed is not touched.

    Args:
        name: the folder in the lab.
        write: writes one trial into an empty folder.
        ended: whether trials are shown only once they have ended.
    """

    def __init__(self, lab: Lab, name: str, write: Write, *, ended: bool = False) -> None:
        self._lab, self._name, self._write, self._ended = lab, name, write, ended
        self._memory: dict[str, Memory] = defaultdict(Memory)

    def sync(self, sweep_name: str, *, closing: bool = False) -> SyncReport:
        """Make the folders equal to the records of a sweep; again changes nothing.

        Raises:
            UserError: no such sweep, or the folder cannot be written.
        """
        sweep = self._lab.known_sweep(sweep_name)
        plan, root = sweep.plan(), self._lab.root / self._name / sweep.name
        memory = self._memory["/".join([sweep.name, *plan.planned])]
        projection = Projection(self._lab, plan, memory)
        done, problems, shown = Counter[str](), list[str](), set[str]()
        with exclusive(root / ".lock", f"{self._name} of {sweep.name}"):
            for trial in trials_of(sweep.name, plan):
                state = projection.state(trial)
                if state is RunState.PENDING or (self._ended and not state.ended):
                    continue
                shown.add(_folder_name(trial))
                try:
                    done.update(self._trial(root, sweep.name, trial, state, projection))
                except UserError as error:
                    problems.append(f"{trial.key}: {error}")
            for mark in root.glob(f"*/{_SENT}"):
                if mark.parent.name not in shown:
                    shutil.rmtree(mark.parent)
                    done["removed"] += 1
        return SyncReport(sweep.name, len(shown), **done, problems=tuple(problems))

    def _trial(
        self, root: Path, sweep: str, trial: ShownTrial, state: RunState, projection: Projection
    ) -> dict[str, int]:
        """Write one trial unless it stands there; return what was done."""
        folder, stamp = root / _folder_name(trial), projection.stamp(trial, state)
        stored = read_json(folder / _SENT)
        if stored == {"stamp": stamp}:
            return {"unchanged": 1}
        view, new = projection.view(trial, state), root / ".new"
        shutil.rmtree(new, ignore_errors=True)
        with writing(folder):
            new.mkdir(parents=True)
            self._write(new, sweep, view)
            write_json(new / _SENT, {"stamp": stamp})
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
        return {"updated" if stored else "created": 1, "values": len(numbers_of(view))}


def write_events(folder: Path, sweep: str, view: View) -> None:
    """Write one TensorBoard event file: curves, parameters, tags as text; values are fp32 there."""
    from tensorboardX.event_file_writer import EventFileWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import hparams, text

    writer = EventFileWriter(str(folder))
    numbers = numbers_of(view)
    params = {"sweep": sweep, **view.params, **view.tags}
    lines = [f"| {name} | {value} |" for name, value in params.items()]
    table = "\n".join(["| | |", "|---|---|", *lines])
    summaries = [
        *hparams(dict(view.settings), {n.key: n.value for n in numbers}),
        text("run", table),
    ]
    started = view.started / 1000
    for summary in summaries:
        writer.add_event(Event(wall_time=started, summary=summary))
    for number in numbers:
        value = Summary.Value(tag=number.key, simple_value=number.value)
        summary = Summary(value=[value])
        writer.add_event(Event(wall_time=number.time / 1000, step=number.step, summary=summary))
    writer.close()


def write_run(folder: Path, sweep: str, view: View) -> None:
    """Write one run of W&B, offline: `wandb sync` sends it, this never does.

    Its id is that of the trial, so that sending it again replaces it.
    """
    import wandb

    tags = {name: text for name, text in view.tags.items() if not name.startswith("mlflow.")}
    run = wandb.init(
        project="tread-lab",
        group=sweep,
        id=f"{sweep[:60]}-{view.tags['signature']}-{zlib.crc32(view.name.encode()):08x}",
        name=view.name,
        notes=view.tags.get("mlflow.note.content"),
        config={**view.settings, **tags},
        mode="offline",
        dir=str(folder),
        reinit="create_new",
        settings=wandb.Settings(
            silent=True, console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True
        ),
    )
    steps = itertools.groupby(numbers_of(view), key=lambda number: number.step)
    for step, group in steps:
        numbers = list(group)
        logged_at = min(number.time for number in numbers) / 1000  # W&B would take the time of now
        values = {number.key: number.value for number in numbers}
        run.log({"_timestamp": logged_at, **values}, step=step)
    run.finish(exit_code=int(view.status == "FAILED"))


def numbers_of(view: View) -> list[Number]:
    """Return every value of a trial in the order of its steps."""
    numbers = [*view.logged.values(), *view.during, *view.measured.values()]
    return sorted(numbers, key=lambda number: number.step)


def _folder_name(trial: ShownTrial) -> str:
    """Return a name that people recognise and no other trial of the sweep has."""
    label = re.sub(r"[^\w.=+-]+", "_", f"{trial.label} seed {trial.stored.seed}")[:80]
    return f"{label}-{zlib.crc32(trial.key.encode()):08x}"
