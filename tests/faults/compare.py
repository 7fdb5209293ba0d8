"""What a lab holds, in a form in which a disturbed sweep must equal an undisturbed one."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from tests.tracking.conftest import Store
from tread_lab.records import metric_names
from tread_lab.records.durable import read_entries
from tread_lab.records.lab import Lab
from tread_lab.records.locks import is_held
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.checkpoint import load_latest

CLOCKED = (metric_names.TRAIN_IMAGES_PER_S,)  # differs from one machine to the next


@dataclass(frozen=True)
class Run:
    """Everything that a run's record says and that does not depend on the clock, every bit."""

    state: str
    step: int
    flops: float | None
    logged: str
    measured: str
    weights: str


def outcome(lab: Lab) -> dict[str, Run]:
    """Run -> what its record holds."""
    return {folder.name: _run(folder) for folder in lab.runs()}


def _run(folder: RunFolder) -> Run:
    result = folder.result() or {}
    logged = sorted((e.step, e.key, e.value) for e in folder.entries() if e.key not in CLOCKED)
    measured = {e.path.name: (e.read() or {}).get("metrics") for e in folder.evaluations()}
    return Run(
        state=folder.state(),
        step=int(result.get("step", -1)),
        flops=result.get("metrics", {}).get(metric_names.TRAIN_FLOPS),
        logged=repr(logged),
        measured=repr(sorted(measured.items())),
        weights=_weights(folder),
    )


def _weights(folder: RunFolder) -> str:
    found = load_latest(folder.checkpoints)
    digest = hashlib.sha256()
    for name, tensor in sorted(found.tensors.items()) if found else ():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


def attempts(lab: Lab) -> dict[str, int]:
    """Run -> how often it was started, as its record tells."""
    return {folder.name: len(folder.origin()) for folder in begun(lab)}


def begun(lab: Lab) -> list[RunFolder]:
    """The folders of all runs that were begun."""
    return [folder for folder in lab.runs() if (folder.path / "spec.yaml").exists()]


@dataclass
class Book:
    """Notes which runs had finished at every disturbance: none of them may be executed again."""

    lab: Lab
    finished: dict[str, int] = field(default_factory=dict)

    def note(self) -> None:
        for run, count in attempts(self.lab).items():
            if self.lab.run(run).result() is not None:
                self.finished.setdefault(run, count)

    def check(self) -> None:
        now = attempts(self.lab)
        assert {run: now[run] for run in self.finished} == self.finished


def replayed(lab: Lab) -> dict[str, int]:
    """Run -> how many log entries were written more than once."""
    counts = {}
    for folder in begun(lab):
        keys = [(e.key, e.step) for e in read_entries(folder.log_path)]
        counts[folder.name] = len(keys) - len(set(keys))
    return counts


def check_quiet(lab: Lab) -> None:
    """Nobody holds anything any more; files left unfinished may lie about."""
    assert [path for path in lab.root.rglob(".claim") if is_held(path)] == []


def check_store(lab: Lab, *, runs: int, store: Store | None = None) -> None:
    """MLflow's store holds the runs once each, all over, every value once."""
    store = store or Store(lab.root / "mlflow.db")
    assert set(store.statuses().values()) == {"FINISHED"}
    active = "JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active'"
    assert store.count("runs WHERE lifecycle_stage = 'active'") == runs
    points = store.rows(f"SELECT run_uuid, key, step FROM metrics {active}")
    assert len(points) == len(set(points))
    logged = Counter(entry.key for folder in begun(lab) for entry in folder.entries())
    for key, count in logged.items():
        assert store.rows(f"SELECT count(*) FROM metrics {active} AND key = ?", key) == [(count,)]
