"""A sweep with every kind of record, its archive, and archives as others would write them."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.runs import finished
from tests.synthetic import small, write_sweep
from tread_lab.records.durable import write_json, write_text
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.sweep_archive import Transfer, export_sweep, import_sweep
from tread_lab.records.sweep_folder import Stopped
from tread_lab.specs.evaluation_defaults import EvaluationDefaults

Entry = tuple[zipfile.ZipInfo, bytes]
WEIGHTS = b"1234"


def packed(lab: Lab, out: Path, name: str = "placement", **options: bool) -> Transfer:
    return finished(export_sweep(lab, name, out, **options))


def merged(lab: Lab, path: Path, name: str | None = None) -> Transfer:
    return finished(import_sweep(lab, path, name))


def checkpoint(run: RunFolder, content: bytes = WEIGHTS, step: int = 400) -> Path:
    """Write a checkpoint, as small as one can be."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = run.checkpoints / f"step-{step:08d}-{digest}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def records(lab: Lab) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file of a lab but its locks."""
    return {
        path.relative_to(lab.root).as_posix(): (path.read_bytes(), int(path.stat().st_mtime) // 2)
        for path in lab.root.rglob("*")
        if path.is_file() and path.name != ".claim"
    }


def entry(name: str, content: bytes, mode: int = stat.S_IFREG) -> Entry:
    made = zipfile.ZipInfo(name)
    made.external_attr = (mode | 0o644) << 16
    return made, content


def rewritten(archive: Path, entries: Callable[[list[Entry]], list[Entry]]) -> None:
    """Write an archive again as one would who knows the format, with other entries."""
    with zipfile.ZipFile(archive) as old:
        pairs = entries([(e, old.read(e)) for e in old.infolist()])
    with zipfile.ZipFile(archive, "w") as new:
        for pair in pairs:
            new.writestr(*pair)


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
    folder.add_stopped(Stopped(first.name, 7, "early"))
    write_text(folder.spent_path, "")
    return lab


@pytest.fixture(scope="session")
def made_archive(made_source: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "a.zip"
    packed(made_source, path)
    return path


@pytest.fixture
def source(made_source: Lab, tmp_path: Path) -> Lab:
    """The lab of that sweep, to be changed."""
    return Lab(shutil.copytree(made_source.root, tmp_path / "source"))


@pytest.fixture
def archive(made_archive: Path, tmp_path: Path) -> Path:
    """The archive of that sweep, to be changed."""
    return shutil.copy2(made_archive, tmp_path / "a.zip")
