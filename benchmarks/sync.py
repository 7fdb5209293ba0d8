"""What a run costs `tread-lab sync`, beside plain create_run and log_batch on the same store.

python benchmarks/sync.py                               # a SQLite file
python benchmarks/sync.py --uri http://127.0.0.1:5000   # a server of yours
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.synthetic import Synthetic, write_sweep
from tread_lab.records.lab import Lab
from tread_lab.tracking.mlflow_client import MlflowClient, open_client
from tread_lab.tracking.mlflow_tracker import MlflowTracker

PLACES = tuple((i, j) for i in range(12) for j in range(i, 12))
SMALL = {"history": True, "similarity": False, "specs": True}
PICTURES = {"history": True, "similarity": True, "pictures": True}


def make_lab(root: Path, runs: int, **options: bool) -> Lab:
    """A finished sweep of about `runs` runs with a log of 20 entries each; nothing is fsynced."""
    seeds = range(max(1, round(runs / (1 + len(PLACES)))))
    with mock.patch.object(os, "fsync", lambda _: None):
        return write_sweep(root, Synthetic(name="sync", routes=PLACES, seeds=seeds, **options))


def timed(say: str, runs: int, work: Callable[[], object]) -> float:
    """Print and return the CPU seconds of this process for a run, with wall time beside it."""
    started, busy = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - started, time.process_time() - busy
    print(f"{say:36} {cpu / runs:.4f} CPU s a run, {runs / wall:6.1f} runs/s", flush=True)
    return cpu / runs


def plain(client: MlflowClient, calls: list[dict[str, object]], name: str) -> None:
    """Send the same runs by nothing but `create_run` and `log_batch`."""
    experiment = client.create_experiment(name)
    for call in calls:
        run = client.create_run(experiment)
        client.log_batch(run.info.run_id, **call)


def measure(root: Path, uri: str, runs: int, options: dict[str, bool]) -> None:
    """Sync a lab twice, send what was sent by plain calls, and compare."""
    lab, name = make_lab(root, runs, **options), f"sync {time.time()}"
    calls: list[dict[str, object]] = []
    send = MlflowClient.log_batch

    def kept(client: MlflowClient, run: str, *parts: object) -> None:
        calls.append(dict(zip(("metrics", "params", "tags"), parts)))
        send(client, run, *parts)

    client = open_client(uri)
    count = len(lab.sweep("sync").plan().trials)
    tracker = MlflowTracker(lab, uri, experiment=name)
    with mock.patch.object(MlflowClient, "log_batch", kept):
        synced = timed(f"first sync of {count} runs", count, lambda: tracker.sync("sync"))
    timed("sync again, nothing new", count, lambda: tracker.sync("sync"))
    limit = timed(
        "create_run and log_batch alone", count, lambda: plain(client, calls, f"{name} plain")
    )
    print(f"{'sync over the limit':36} {synced / limit:.2f}")


def main() -> None:
    """Measure small runs, and with `--pictures` runs with ten artifacts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--uri", help="a store of MLflow; a SQLite file of its own by default")
    parser.add_argument("--pictures", action="store_true", help="ten artifacts a run, not two")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uri = options.uri or f"sqlite:///{folder}/mlflow.db"
        kind = PICTURES if options.pictures else SMALL
        measure(Path(folder) / "lab", uri, options.runs, kind)


if __name__ == "__main__":
    main()
