"""Small sweeps written through the records API, and a look into the SQLite file of a store."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.sweep.plans import plan_of
from tread_lab.config import HeldoutSpec, RunSpec, SamplesSpec, SimilaritySpec, decode
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder

HELDOUT = HeldoutSpec(images=6, levels=2)
SIMILARITY = SimilaritySpec(images=2, levels=2)
SAMPLES = SamplesSpec(metrics=("fd",), count=1000)
FD = "fd[fashion16-v1]@1k"


def spec_of(route: tuple[int, int] | None, seed: int = 0, **more: Any) -> RunSpec:
    routes = [] if route is None else [{"start": route[0], "end": route[1], "rate": 0.5}]
    model = {"depth": 6, "width": 16, "heads": 2}
    tree = {"model": model, "precision": "fp32", "train": {"steps": 40, "batch": 8}}
    return decode(RunSpec, {**tree, "routes": routes, "seed": seed, **more})


@dataclass
class Sweeps:
    """Writes plans and runs into one lab."""

    lab: Lab

    def plan(
        self,
        name: str = "placement",
        routes: Sequence[tuple[int, int]] = ((0, 2), (1, 4)),
        seeds: Sequence[int] = (0,),
        evaluate: Sequence[Any] = (HELDOUT, SIMILARITY, SAMPLES),
    ) -> list[RunSpec]:
        """Plan a sweep; its runs in order, the baselines first."""
        axes = {"route": [{"start": start, "end": end} for start, end in routes], "rate": [0.5]}
        tree = {"axes": axes, "seeds": [*seeds], "evaluate": [*evaluate]}
        plan = plan_of(spec_of(None), name, question="Where?", **tree)
        write_text(self.lab.sweep(name).plan_path, plan.text())
        return [trial.spec for trial in plan.trials]

    def log(self, spec: RunSpec, first: int, last: int, *, clock: float = 0.0) -> RunFolder:
        """Train from step `first` to `last`, logging every fifth."""
        run = self.lab.run_of(spec)
        run.create(spec)
        run.open_attempt(origin={"code": "abc1234-dirty", "device": "cpu"})
        with run.log() as log:
            for step in range(first, last + 1, 5):
                values = {"train/loss": 1 / step, "train/images_per_s": 100 + clock}
                log(step, **values)
        return run

    def finish(self, spec: RunSpec, state: str = "completed", **facts: Any) -> RunFolder:
        """Train to the end and measure."""
        run = self.log(spec, 5, 40)
        run.finish(state, step=40, **{"metrics": {"cost/train_flops": 1e9}, **facts})
        if state == "completed":
            self.measure(spec)
        return run

    def measure(self, spec: RunSpec) -> None:
        run = self.lab.run_of(spec)
        length = sum(len(route.blocks) for route in spec.routes)
        noise = np.random.default_rng(spec.seed).normal(1, 0.1, (6, 2))
        own = np.random.default_rng(length).normal(0, 0.001, (6, 2))
        dense = noise + 0.01 * length + own
        arrays = {"dense": dense, "level": np.ones((6, 2))}
        metrics = {"heldout/loss": float(dense.mean())}
        if length:
            arrays["routed"] = dense + 0.5
            metrics["gap/route"] = 0.5
        losses, similarity, samples = map(run.evaluation, (HELDOUT, SIMILARITY, SAMPLES))
        for folder in (losses, similarity, samples):
            folder.path.mkdir(parents=True)
        np.savez(losses.path / "losses.npz", **arrays)  # type: ignore[arg-type]
        losses.write(HELDOUT, metrics, step=40)
        np.savez(similarity.path / "similarity.npz", mean=np.eye(6))
        similarity.write(SIMILARITY, {"similarity/adjacent": 0.9}, step=40)
        grid = Image.fromarray(np.full((8, 8), 40 * length, dtype=np.uint8))
        grid.save(samples.path / "grid.png")
        samples.write(SAMPLES, {FD: 2.0 + length}, step=40)

    def sync(self, name: str = "placement") -> Counter[str]:
        from tread_lab.tracking.mlflow_tracker import MlflowTracker

        return MlflowTracker(self.lab, self.lab.mlflow_uri).sync(name)

    def complete(self, name: str = "placement", **options: Any) -> list[RunSpec]:
        """A sweep that was planned and run to its end."""
        specs = self.plan(name, **options)
        for spec in specs:
            if self.lab.run_of(spec).result() is None:
                self.finish(spec)
        return specs


@dataclass
class Store:
    """What lies in the SQLite file of a lab's store."""

    path: Path

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path)) as database:
            found = database.execute(query, values).fetchall()
            database.commit()
            return found

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def counts(self) -> dict[str, int]:
        return {table: self.count(table) for table in ("runs", "metrics", "params", "tags")}

    def runs(self) -> dict[str, tuple[str, str]]:
        """Name -> (run id, status) of the runs that are not deleted."""
        query = "SELECT name, run_uuid, status FROM runs WHERE lifecycle_stage = 'active'"
        return {name: (run_id, status) for name, run_id, status in self.rows(query)}

    def statuses(self) -> dict[str, str]:
        return {name: status for name, (_, status) in self.runs().items()}

    def run_id(self, name: str) -> str:
        return self.runs()[name][0]

    def latest(self, name: str) -> dict[str, float]:
        query = "SELECT key, value FROM latest_metrics WHERE run_uuid = ?"
        return dict(self.rows(query, self.run_id(name)))

    def tags(self, name: str) -> dict[str, str]:
        return dict(self.rows("SELECT key, value FROM tags WHERE run_uuid = ?", self.run_id(name)))

    def everything(self) -> list[tuple[Any, ...]]:
        """All that people see, without the random names of runs."""
        runs = "JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active'"
        return sorted(
            [
                *self.rows("SELECT name, status, start_time, end_time FROM runs"),
                *self.rows(f"SELECT name, key, value FROM params {runs}"),
                *self.rows(f"SELECT name, key, value FROM tags {runs}"),
                *self.rows("SELECT key, value FROM experiment_tags"),
                *self.rows(f"SELECT name, key, step, timestamp, value FROM metrics {runs}"),
            ],
            key=repr,
        )


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that MLflow has just made; copied, because making one takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}")
    return path


@pytest.fixture
def sweeps(lab: Lab) -> Sweeps:
    return Sweeps(lab)


@pytest.fixture
def store(lab: Lab, empty_store: Path) -> Store:
    """The lab's store, made and empty."""
    lab.root.mkdir(parents=True)
    shutil.copy(empty_store, lab.root / "mlflow.db")
    return Store(lab.root / "mlflow.db")
