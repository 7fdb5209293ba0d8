"""Claims about archives of sweeps: all of a sweep arrives, nothing that was changed does, and what
the lab has stays."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pickle
import shutil
import stat
import struct
import time
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.runs import finished
from tests.faults.drivers import KILLED, Zygote
from tests.records.conftest import (
    WEIGHTS,
    Entry,
    checkpoint,
    entry,
    merged,
    packed,
    records,
    rewritten,
)
from tests.synthetic import small, write_sweep
from tread_lab.engine.checkpoint import load_latest
from tread_lab.frames import trials_frame
from tread_lab.records import sweep_archive
from tread_lab.records.durable import DiskFull, write_json, write_text
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.records.run_status import run_status
from tread_lab.records.status import RunState
from tread_lab.records.sweep_archive import (
    DIFFERENT,
    HERE,
    NEW,
    PACKED,
    PENDING,
    STAGE,
    import_sweep,
)
from tread_lab.records.sweep_folder import Suggestion
from tread_lab.specs import UserError, signature
from tread_lab.specs.errors import Unavailable


def test_all_records_of_a_sweep_arrive_with_their_times(
    source: Lab, lab: Lab, tmp_path: Path
) -> None:
    extra = [source.sweep("placement").figures / "a.png", source.root / "mlflow.db"]
    extra += [source.sweep("placement").study_path, source.root / "runs" / ("f" * 16) / "log.jsonl"]
    extra += [source.runs()[0].path / name for name in ("notes.txt", ".pulse", "checkpoints/x.pt")]
    before = records(source)
    for path in extra:
        write_text(path, "not carried")
    out = packed(source, tmp_path / "a.zip")
    assert (out.runs, out.weights) == ({PACKED: 4, PENDING: 0}, True)
    into = merged(lab, tmp_path / "a.zip")
    assert records(lab) == before
    assert len(before) == out.files == into.files and out.bytes == into.bytes
    assert (into.runs, into.sweep, into.weights) == ({NEW: 4}, "placement", True)
    assert not (lab.root / STAGE).exists()
    for run in source.runs()[:4]:
        assert run_status(lab.run(run.name)) == run_status(run)
    assert trials_frame(lab, "placement").equals(trials_frame(source, "placement"))


def test_weights_are_left_out_where_none_are_asked_for(
    source: Lab, lab: Lab, tmp_path: Path
) -> None:
    packed(source, tmp_path / "a.zip", weights=False)
    assert merged(lab, tmp_path / "a.zip").weights is False
    whole = {k: v for k, v in records(source).items() if not k.endswith(".safetensors")}
    assert records(lab) == whole


def test_an_archive_of_an_earlier_version_has_a_manifest_and_no_times(
    source: Lab, archive: Path, lab: Lab
) -> None:
    def earlier(entries: list[Entry]) -> list[Entry]:
        return [*(entry(e.filename, content) for e, content in entries), entry(MANIFEST, b"{}")]

    rewritten(archive, earlier)
    assert merged(lab, archive).runs == {NEW: 4}
    assert {k: v[0] for k, v in records(lab).items()} == {
        k: v[0] for k, v in records(source).items()
    }
    assert all(time.time() - f.stat().st_mtime < 3600 for f in lab.root.rglob("*.json"))


def test_a_run_that_has_not_begun_is_no_part_of_it(tmp_path: Path, lab: Lab) -> None:
    states = {(2, 8): "pending", (0, 4): "interrupted"}
    source = write_sweep(tmp_path / "source", small(states=states))
    out = packed(source, tmp_path / "a.zip")
    assert out.runs == {PACKED: 3, PENDING: 1}
    merged(lab, tmp_path / "a.zip")
    found = [lab.run(run).state() for run in lab.sweep("placement").plan().runs()]
    assert found == ["completed", "interrupted", "pending", "completed"]


def test_parents_and_suggested_runs_are_part_of_it(lab: Lab, tmp_path: Path) -> None:
    source = write_sweep(tmp_path / "source", small())
    plan = source.sweep("placement").plan()
    parent = {**plan.trials[0].spec, "seed": 9}
    child = dataclasses.replace(
        plan.trials[1], run="c" * 16, spec={**parent, "init_from": {"run": parent}}
    )
    source.sweep("placement").add_suggestion(Suggestion(0, {}, (child,)))
    for name in ("c" * 16, signature(parent)):
        source.run(name).finish(RunState.COMPLETED, step=1)
    packed(source, tmp_path / "a.zip")
    merged(lab, tmp_path / "a.zip")
    assert {"c" * 16, signature(parent)} <= {run.name for run in lab.runs()}
    assert len(lab.runs()) == 6


def refused(lab: Lab, archive: Path) -> str:
    """What is said of an archive of which nothing is imported."""
    with pytest.raises(UserError) as refusal:
        merged(lab, archive)
    assert not lab.root.exists() or not list(lab.root.iterdir())
    return str(refusal.value)


def test_a_changed_bit_in_any_file_is_refused_by_its_name(archive: Path, lab: Lab) -> None:
    whole = archive.read_bytes()
    with zipfile.ZipFile(archive) as entries:
        places = {info.filename: info for info in entries.infolist() if info.file_size}
    kinds = {Path(name).suffix for name in places}
    assert kinds == {".json", ".jsonl", ".yaml", ".txt", ".npz", ".png", ".safetensors"}
    for name, info in places.items():
        changed = bytearray(whole)
        names = struct.unpack("<HH", whole[info.header_offset + 26 : info.header_offset + 30])
        changed[info.header_offset + 30 + sum(names) + info.compress_size // 2] ^= 4
        archive.write_bytes(changed)
        said = refused(lab, archive)
        assert said.endswith("; nothing was imported") and name in said


MANIFEST = "manifest.json"
RUN = "runs/0123456789abcdef"
PLAN = "sweep/plan.json"


@pytest.mark.parametrize(
    ("name", "content", "mode", "line"),
    [
        *(
            (name, b"/etc/passwd", mode, "no archive of a sweep holds it")
            for name, mode in (
                ("../outside.json", stat.S_IFREG),
                (f"{RUN}/../../../outside.json", stat.S_IFREG),
                (f"{RUN}/checkpoints/last.pt", stat.S_IFREG),
                (f"{RUN}/", stat.S_IFDIR),
                (f"{RUN}/log.jsonl\n", stat.S_IFREG),
            )
        ),
        (f"{RUN}/log.jsonl", b"x", stat.S_IFREG, "is of a run that the plan does not have"),
        (f"{RUN}/log.jsonl", b"x", stat.S_IFLNK, "is a link or no plain file"),
        (f"{RUN}/log.jsonl", b"x", stat.S_IFCHR, "is a link or no plain file"),
        ("sweep/spent.jsonl", b"", stat.S_IFREG, "holds it twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_added_file_is_refused(
    archive: Path, lab: Lab, name: str, content: bytes, mode: int, line: str
) -> None:
    rewritten(archive, lambda entries: [*entries, entry(name, content, mode)])
    said = refused(lab, archive)
    assert repr(name)[1:-1] in said and line in said and said.endswith("; nothing was imported")
    assert not (lab.root.parent / "outside.json").exists()


def test_a_checkpoint_must_be_what_its_name_says(archive: Path, source: Lab, lab: Lab) -> None:
    path = checkpoint(source.runs()[0], b"another", step=300)
    name = path.relative_to(source.root).as_posix()
    rewritten(archive, lambda entries: [*entries, entry(name, WEIGHTS)])
    assert f"{name} is not the checkpoint that its name says" in refused(lab, archive)


def test_a_pickle_under_the_name_of_a_checkpoint_is_never_loaded(
    archive: Path, source: Lab, lab: Lab
) -> None:
    bomb = pickle.dumps({"weights": [1.0]})
    path = checkpoint(source.runs()[0], bomb, step=300)
    name = path.relative_to(source.root).as_posix()
    rewritten(archive, lambda entries: [*entries, entry(name, bomb)])
    merged(lab, archive)
    with pytest.warns(UserWarning, match=r"step-\d+-\w+\.safetensors is damaged"):
        assert load_latest((lab.root / name).parent) is None


@pytest.mark.parametrize(
    "text", [b"{}", b'{"format": 1, "name": "x", "trials": [{"spec": 3}]}', b"[" * 9999]
)
def test_a_plan_that_is_none_is_refused(archive: Path, lab: Lab, text: bytes) -> None:
    def change(entries: list[Entry]) -> list[Entry]:
        return [(e, text if e.filename == PLAN else content) for e, content in entries]

    rewritten(archive, change)
    assert f"{PLAN} is no plan of this version" in refused(lab, archive)


def cut(share: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def foreign(path: Path, name: str = "readme") -> None:
    with zipfile.ZipFile(path, "w") as other:
        other.writestr(name, "hello")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        *((cut(share), "no archive of a sweep") for share in (0.0, 0.5, 0.999)),
        (foreign, "{}: readme: no archive of a sweep holds it; nothing"),
        (lambda path: foreign(path, MANIFEST), f"{{}}: {PLAN} is no plan of this version; nothing"),
        (lambda path: path.write_text("hello"), "cut off, or no archive of a sweep ("),
        (Path.unlink, "cannot read {}: No such file"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot read {}: Is a directory"),
    ],
)
def test_what_is_no_whole_archive_is_one_line(
    archive: Path, lab: Lab, change: Callable[[Path], object], line: str
) -> None:
    change(archive)
    assert line.format(archive) in refused(lab, archive)


def test_an_archive_larger_than_the_free_disk_is_refused_beforehand(
    archive: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(sweep_archive.shutil, "disk_usage", lambda path: usage(9, 8, 1000))
    with pytest.raises(DiskFull, match=r"unpacked, 1 kB are free in"):
        merged(lab, archive)
    assert not lab.root.exists()


def test_a_disk_that_fills_is_told_and_nothing_is_left(
    archive: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sweep_archive.os, "sync", full)
    with pytest.raises((Unavailable, OSError)):
        merged(lab, archive)
    assert list(lab.root.iterdir()) == []


def test_two_imports_into_one_lab_do_not_meet(archive: Path, lab: Lab) -> None:
    first = import_sweep(lab, archive)
    next(first)
    with pytest.raises(UserError, match=r"the import into .*lab is in use by another process"):
        merged(lab, archive)
    assert finished(first).runs == {NEW: 4}


def test_runs_that_compare_with_another_file_of_the_same_name_are_refused(
    archive: Path, lab: Lab
) -> None:
    write_json(lab.root / "references" / "coco.json", {"sha256": "b" * 64, "file": "/y"})
    with pytest.raises(UserError, match="another file than this lab's as reference coco; import"):
        merged(lab, archive)
    assert lab.runs() == [] and lab.sweeps() == []
    shutil.rmtree(lab.root)
    name = "references/coco.json"
    rewritten(archive, lambda found: [(e, b"{}" if e.filename == name else b) for e, b in found])
    assert f"{name} names no file; nothing was imported" in refused(lab, archive)


def test_a_sweep_that_one_may_only_read_is_exported_while_nobody_works_at_it(
    source: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_archive.os, "access", lambda path, mode: False)
    monkeypatch.setattr("tread_lab.records.locks.os.ftruncate", None)  # no lock is signed
    run = source.runs()[1]
    (run.path / ".claim").touch()
    assert packed(source, tmp_path / "a.zip").runs == {PACKED: 4, PENDING: 0}
    with (run.path / ".claim").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Busy, match=f"{run.path} is in use by another process; export when"):
            packed(source, tmp_path / "b.zip")


def test_a_sweep_at_work_is_not_exported(source: Lab, tmp_path: Path) -> None:
    out, sweep, run = tmp_path / "a.zip", source.sweep("placement"), source.runs()[2]
    for folder, what in ((sweep, "sweep placement"), (run, f"run {run.name}")):
        with folder.lock(), pytest.raises(UserError) as refusal:
            packed(source, out)
        assert str(refusal.value).startswith(f"{what} is in use by another process")
        assert str(refusal.value).endswith("; export when it has ended, or stop it by Ctrl-C first")
    assert list(tmp_path.glob("*.zip")) == list(tmp_path.glob(".a.zip*")) == []


def test_an_export_takes_no_existing_file_and_no_damaged_weights(
    source: Lab, tmp_path: Path
) -> None:
    (tmp_path / "a.zip").touch()
    with pytest.raises(UserError, match=r"a\.zip exists; name another file"):
        packed(source, tmp_path / "a.zip")
    path = checkpoint(source.runs()[0])
    path.write_bytes(WEIGHTS[:-1])
    with pytest.raises(UserError, match=f"{path} is not the checkpoint .* says; move it away"):
        packed(source, tmp_path / "b.zip")
    assert [p.name for p in tmp_path.glob("*.zip")] == ["a.zip"]
    assert packed(source, tmp_path / "b.zip", weights=False).runs[PACKED] == 4


SPRINT = "routes_until: 5\nbypass: {kind: sprint}\n"  # whose dense steps dropped no paths


AT = """
import os, signal
from tread_lab.records import sweep_archive
calls = []
def dies(function):
    def counted(*arguments, **more):
        calls.append(1)
        if len(calls) == {n}:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return counted
{place} = dies({place})
"""


@pytest.mark.parametrize(
    ("place", "n", "runs"),
    [
        ("sweep_archive._chunks", 20, 0),
        ("sweep_archive._move", 3, 2),
        ("sweep_archive._move", 6, 4),
    ],
)
def test_a_killed_import_leaves_whole_runs_or_nothing_and_the_next_goes_on(
    source: Lab, archive: Path, lab: Lab, zygote: Zygote, place: str, n: int, runs: int
) -> None:
    words = ("import", str(archive), "--root", str(lab.root))
    killed = zygote.run(lab.root.parent, *words, prelude=AT.format(place=place, n=n))
    assert killed.returncode == KILLED
    assert (lab.sweeps(), len(lab.runs()), (lab.root / STAGE).exists()) == ([], runs, True)
    for run in lab.runs():
        assert run_status(run) == run_status(source.run(run.name))
    again = merged(lab, archive)
    assert again.runs == {name: count for name, count in ((HERE, runs), (NEW, 4 - runs)) if count}
    assert records(lab) == records(source)
    assert not (lab.root / STAGE).exists() and not again.lines


def test_a_run_that_the_lab_has_stays_as_it_is_and_is_named_where_it_differs(
    source: Lab, archive: Path, lab: Lab
) -> None:
    first, second, third, last = (lab.run(run.name) for run in source.runs())
    with first.log() as log:
        log(3, loss=1.0)
    for run in (second, third, last):
        shutil.copytree(source.run(run.name).path, run.path)
    with third.log() as log:
        log(900, loss=1.0)
    checkpoint(last)  # of which the archive has none
    before = records(lab)
    transfer = merged(lab, archive)
    assert transfer.runs == {DIFFERENT: 2, HERE: 2}
    assert transfer.lines == tuple(
        f"run {run.name} differs from the archive's, and stays as it is here: {here}, for"
        f" completed at step 400; to have that one, delete {run.path}, then import again"
        for run, here in ((first, "interrupted at step 3"), (third, "completed at step 400"))
    )
    assert {k: v for k, v in records(lab).items() if k.startswith("runs/")} == before
    shutil.rmtree(first.path)
    again = merged(lab, archive)
    assert again.runs == {NEW: 1, DIFFERENT: 1, HERE: 2}
    assert run_status(first) == run_status(source.run(first.name))
    assert again.lines[1:] == ("sweep placement is here, and stays: its plan, stops and hours",)


def test_another_sweep_of_the_same_name_is_refused_unless_it_gets_another_name(
    source: Lab, archive: Path, lab: Lab
) -> None:
    for other in (small(), small(routes=((1, 2),), seeds=(5,))):  # measures less; has other runs
        shutil.rmtree(lab.root, ignore_errors=True)
        write_sweep(lab.root, other)
        before = records(lab)
        with pytest.raises(UserError) as refusal:
            merged(lab, archive)
        assert "sweep placement of this lab has another plan: " in str(refusal.value)
        assert "--as NAME imports it under another name" in str(refusal.value)
        assert records(lab) == before
    (sweep := lab.sweep("placement")).plan_path.rename(sweep.path / "notes.md")
    with pytest.raises(UserError, match=r"/sweeps/placement has files and no plan; move it away"):
        merged(lab, archive)
    assert (sweep.path / "notes.md").exists()
    with pytest.raises(UserError, match=r"'\.\./x' is not a name"):
        merged(lab, archive, "../x")
    assert merged(lab, archive, "theirs").sweep == "theirs"
    assert lab.sweeps() == ["theirs"]
    assert lab.sweep("theirs").plan().name == "theirs"
    theirs, ours = trials_frame(lab, "theirs"), trials_frame(source, "placement")
    assert theirs.drop(columns="sweep", errors="ignore").equals(
        ours.drop(columns="sweep", errors="ignore")
    )


def test_a_sweep_that_the_lab_has_stays_and_its_figures_are_drawn_anew(
    lab: Lab, tmp_path: Path
) -> None:
    theirs = write_sweep(tmp_path / "theirs", small()).sweep("placement")
    mine = write_sweep(lab.root, small(states={(2, 8): "pending"})).sweep("placement")
    write_text(mine.spent_path, "")
    write_text(theirs.stopped_path, "")
    mine.drawn_path.touch()
    packed(Lab(tmp_path / "theirs"), tmp_path / "a.zip")
    with mine.lock():  # whose driver takes the runs that arrive
        assert merged(lab, tmp_path / "a.zip").runs[NEW] == 1
    assert mine.spent_path.exists() and not mine.stopped_path.exists()
    assert not mine.drawn_path.exists()
