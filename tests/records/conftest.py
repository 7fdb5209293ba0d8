"""A sweep with every kind of record."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.records.durable import write_json, write_text
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.sweep_folder import Stopped
from tread_lab.specs.evaluation_defaults import EvaluationDefaults

WEIGHTS = b"1234"


def checkpoint(run: RunFolder, content: bytes = WEIGHTS, step: int = 400) -> Path:
    """Write a checkpoint, as small as one can be."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = run.checkpoints / f"step-{step:08d}-{digest}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture(scope="session")
def made_source(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A sweep of four runs with every kind of record; two runs have weights."""
    sweep = dataclasses.replace(small(history=True, similarity=True, pictures=True), log_every=100)
    lab = write_sweep(tmp_path_factory.mktemp("made"), sweep)
    first, second = lab.runs()[:2]
    for run in (first, second):
        checkpoint(run)
        run.attempts.close(run.attempts.open(), "completed")
    first.write_origin({"host": "a"})
    first.keep_steps([5])
    first.keep_defaults(EvaluationDefaults(sampler={"steps": 9}))
    write_json(first.path / "data.json", {"path": "/data"})
    write_text(first.stack_dump(1), "stack\n")
    write_json(lab.root / "references" / "coco.json", {"sha256": "a" * 64, "file": "/x/coco.npz"})
    evaluation = next(first.evaluations())
    tree = evaluation.read() or {}
    tree["spec"]["reference"] = {"name": "coco"}
    write_json(evaluation.path / "metrics.json", tree)
    folder = lab.sweep("placement")
    write_text(folder.path / "plans" / "0001.json", "{}")  # as earlier versions kept them
    folder.add_stopped(Stopped(first.name, 7, "early"))
    write_text(folder.spent_path, "")
    return lab


@pytest.fixture
def source(made_source: Lab, tmp_path: Path) -> Lab:
    """The lab of that sweep, to be changed."""
    return Lab(shutil.copytree(made_source.root, tmp_path / "source"))
