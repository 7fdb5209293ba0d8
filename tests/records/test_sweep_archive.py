"""Claims about archives of sweeps: all arrives, nothing that was changed does, no run is halved."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
import stat
import struct
import zipfile
from collections import namedtuple
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.faults.drivers import KILLED, Zygote
from tests.synthetic import small, write_sweep
from tread_lab.frames import trials_frame
from tread_lab.records import archive as container
from tread_lab.records import sweep_archive
from tread_lab.records.archive import MANIFEST
from tread_lab.records.checksums import json_text, json_tree
from tread_lab.records.durable import DiskFull, write_json, write_text
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_status import run_status
from tread_lab.records.status import RunState
from tread_lab.records.sweep_archive import (
    ADDED,
    BUSY,
    HAS_WEIGHTS,
    KEPT,
    NEW,
    PACKED,
    PENDING,
    STAGE,
    TAKEN,
    Transfer,
    export_sweep,
    import_sweep,
)
from tread_lab.records.sweep_folder import Stopped, Suggestion
from tread_lab.specs import UserError, signature
from tread_lab.specs.errors import Unavailable

T = TypeVar("T")
WEIGHTS = struct.pack("<Q", 2) + b"{}" + b"1234"


def through(steps: Generator[Any, None, T]) -> T:
    """What a generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def packed(lab: Lab, out: Path, name: str = "placement", **options: bool) -> Transfer:
    return through(export_sweep(lab, name, out, **options))


def merged(lab: Lab, path: Path, name: str | None = None) -> Transfer:
    return through(import_sweep(lab, path, name))


def checkpoint(run: RunFolder, content: bytes = WEIGHTS, step: int = 400) -> Path:
    """Write a checkpoint, as small as one can be."""
    import hashlib

    digest = hashlib.sha256(content).hexdigest()[:16]
    path = run.checkpoints / f"step-{step:08d}-{digest}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def records(lab: Lab) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file of a lab but its locks."""
    return {
        path.relative_to(lab.root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in lab.root.rglob("*")
        if path.is_file() and path.name != ".claim"
    }


@pytest.fixture
def source(tmp_path: Path) -> Lab:
    """A sweep of four runs with every kind of record; two runs have weights."""
    lab = write_sweep(
        tmp_path / "source",
        dataclasses.replace(small(history=True, similarity=True, pictures=True), log_every=100),
    )
    first, second = lab.runs()[:2]
    for run in (first, second):
        checkpoint(run)
        run.attempts.close(run.attempts.open(), "completed")
    first.write_origin({"host": "a"})
    first.keep_steps([5])
    write_json(first.path / "data.json", {"path": "/data"})
    write_text(first.stack_dump(1), "stack\n")
    write_json(lab.root / "references" / "coco.json", {"sha256": "a" * 64, "file": "/x/coco.npz"})
    evaluation = next(first.evaluations())
    tree = evaluation.read() or {}
    tree["spec"]["reference"] = {"name": "coco"}
    write_json(evaluation.path / "metrics.json", tree)
    sweep = lab.sweep("placement")
    sweep.keep_plan()
    sweep.add_stopped(Stopped(first.name, 7, "early"))
    write_text(sweep.spent_path, "")
    return lab


@pytest.fixture
def archive(source: Lab, tmp_path: Path) -> Path:
    packed(source, tmp_path / "a.zip")
    return tmp_path / "a.zip"


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
    unmarked = {k: v for k, v in records(lab).items() if not k.endswith("/imported.json")}
    assert unmarked == before
    assert len(before) == out.files == into.files and out.bytes == into.bytes
    assert (into.runs, into.sweep, into.digest) == ({NEW: 4}, "placement", out.digest)
    assert not (lab.root / STAGE).exists()
    for run in source.runs()[:4]:
        assert run_status(lab.run(run.name)) == run_status(run)
    assert trials_frame(lab, "placement").equals(trials_frame(source, "placement"))


def test_without_weights_their_lack_is_recorded(source: Lab, lab: Lab, tmp_path: Path) -> None:
    packed(source, tmp_path / "a.zip", weights=False)
    assert merged(lab, tmp_path / "a.zip").weights is False
    assert not list(lab.root.rglob("*.safetensors"))
    assert all(run.lacks_weights for run in lab.runs())
    checkpoint(lab.runs()[0])
    assert [run.lacks_weights for run in lab.runs()] == [False, True, True, True]
    assert not any(run.lacks_weights for run in source.runs())


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
    source.sweep("placement").add_suggestion(Suggestion(0, {}, (child,), {}))
    for name in ("c" * 16, signature(parent)):
        source.run(name).finish(RunState.COMPLETED, step=1)
    packed(source, tmp_path / "a.zip")
    merged(lab, tmp_path / "a.zip")
    assert {"c" * 16, signature(parent)} <= {run.name for run in lab.runs()}
    assert len(lab.runs()) == 6


def test_a_changed_bit_in_any_file_is_refused_by_its_name(archive: Path, lab: Lab) -> None:
    whole = archive.read_bytes()
    with zipfile.ZipFile(archive) as entries:
        places = {entry.filename: entry for entry in entries.infolist() if entry.file_size}
    kinds = {Path(name).suffix for name in places}
    assert kinds == {".json", ".jsonl", ".yaml", ".txt", ".npz", ".png", ".safetensors"}
    for name, entry in places.items():
        changed = bytearray(whole)
        names = struct.unpack("<HH", whole[entry.header_offset + 26 : entry.header_offset + 30])
        changed[entry.header_offset + 30 + sum(names) + entry.compress_size // 2] ^= 4
        archive.write_bytes(changed)
        with pytest.raises(UserError, match=r"nothing was imported$") as refusal:
            merged(lab, archive)
        assert name == MANIFEST or name in str(refusal.value)
        assert not lab.root.exists() or not list(lab.root.iterdir())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_what_is_cut_off_is_refused(archive: Path, lab: Lab, share: float) -> None:
    os.truncate(archive, int(archive.stat().st_size * share))
    with pytest.raises(UserError, match=r"a\.zip: cut off, or no archive of a sweep \(.*; nothing"):
        merged(lab, archive)
    assert not lab.root.exists()


Entry = tuple[zipfile.ZipInfo, bytes]


def rewritten(
    archive: Path, change: Callable[[list[Entry], dict[str, Any]], Iterable[Entry]]
) -> None:
    """Write an archive again as one would who knows the format: its manifest fits, but for what
    `change` does with files and manifest."""
    import hashlib

    with zipfile.ZipFile(archive) as old:
        manifest = json_tree(old.read(MANIFEST).decode())
        entries = [(e, old.read(e)) for e in old.infolist() if e.filename != MANIFEST]
    entries = list(change(entries, manifest))
    listed = {
        e.filename: {"bytes": len(b), "sha256": hashlib.sha256(b).hexdigest(), "time": 1}
        for e, b in entries
    }
    manifest["files"] = {**listed, **manifest["files"]} if "keep" in manifest else listed
    with zipfile.ZipFile(archive, "w") as new:
        for entry, content in entries:
            new.writestr(entry, content)
        new.writestr(MANIFEST, json_text(manifest))


def entry(name: str, mode: int = stat.S_IFREG) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = (mode | 0o644) << 16
    return made


RUN = "runs/0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "mode", "line"),
    [
        ("../outside.json", stat.S_IFREG, "no archive of a sweep holds it"),
        ("/tmp/outside.json", stat.S_IFREG, "no archive of a sweep holds it"),
        (f"{RUN}/../../../outside.json", stat.S_IFREG, "no archive of a sweep holds it"),
        (f"{RUN}/run.py", stat.S_IFREG, "no archive of a sweep holds it"),
        (f"{RUN}/checkpoints/last.pt", stat.S_IFREG, "no archive of a sweep holds it"),
        (f"{RUN}/", stat.S_IFDIR, "no archive of a sweep holds it"),
        ("sweep/figures/a.html", stat.S_IFREG, "no archive of a sweep holds it"),
        (f"{RUN}/log.jsonl\n", stat.S_IFREG, "no archive of a sweep holds it"),
        (f"{RUN}/log.jsonl", stat.S_IFREG, "is of a run that the plan does not have"),
        (f"{RUN}/log.jsonl", stat.S_IFLNK, "is a link or no plain file"),
        (f"{RUN}/log.jsonl", stat.S_IFCHR, "is a link or no plain file"),
        ("sweep/spent.jsonl", stat.S_IFREG, "holds it twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_added_file_is_refused(archive: Path, lab: Lab, name: str, mode: int, line: str) -> None:
    content = b"" if name == "sweep/spent.jsonl" else b"/etc/passwd"
    rewritten(archive, lambda entries, _: [*entries, (entry(name, mode), content)])
    with pytest.raises(UserError) as refusal:
        merged(lab, archive)
    said = str(refusal.value)
    assert repr(name)[1:-1] in said and line in said and said.endswith("; nothing was imported")
    assert not lab.root.exists() or not list(lab.root.iterdir())
    assert not (lab.root.parent / "outside.json").exists()


def test_a_file_that_the_manifest_has_or_lacks_alone_is_refused(archive: Path, lab: Lab) -> None:
    def lost(entries: list[Entry], manifest: dict[str, Any]) -> list[Entry]:
        manifest["keep"] = True
        return [(e, b) for e, b in entries if e.filename != "sweep/plan.json"]

    rewritten(archive, lost)
    with pytest.raises(UserError, match=r"sweep/plan\.json is missing; nothing"):
        merged(lab, archive)
    with zipfile.ZipFile(archive, "a") as added:
        added.writestr(entry("sweep/asked.jsonl"), "x")
    with pytest.raises(UserError, match=r"sweep/asked\.jsonl is not what manifest\.json says"):
        merged(lab, archive)


def test_a_checkpoint_must_be_what_its_name_says_and_no_pickle(
    archive: Path, source: Lab, lab: Lab
) -> None:
    bomb = pickle.dumps({"weights": [1.0]})
    path = checkpoint(source.runs()[0], bomb, step=300)
    name = f"runs/{source.runs()[0].name}/checkpoints/{path.name}"
    rewritten(archive, lambda entries, _: [*entries, (entry(name), bomb)])
    with pytest.raises(UserError, match=f"{name} is not the checkpoint that its name says"):
        merged(lab, archive)
    other = name.replace("00000300", "00000301")[: -len("x.safetensors")] + "0.safetensors"
    rewritten(archive, lambda entries, _: [*entries[:-1], (entry(other), WEIGHTS)])
    with pytest.raises(UserError, match="is not the checkpoint that its name says"):
        merged(lab, archive)
    assert lab.runs() == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"format": 2, "tread_lab": "9.0"}, 'its format is not 1 (made by tread-lab "9.0"'),
        ({"files": []}, "manifest.json lists no files"),
    ],
)
def test_another_manifest_is_refused(
    archive: Path, lab: Lab, change: dict[str, Any], line: str
) -> None:
    with zipfile.ZipFile(archive) as old:
        manifest = {**json_tree(old.read(MANIFEST).decode()), **change}
    with zipfile.ZipFile(archive, "w") as new:
        new.writestr(MANIFEST, json_text(manifest))
    with pytest.raises(UserError) as refusal:
        merged(lab, archive)
    assert line in str(refusal.value)


def test_a_foreign_file_is_one_line(lab: Lab, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "foreign.zip", "w") as foreign:
        foreign.writestr("readme", "hello")
    with pytest.raises(UserError, match=r"cut off, or no archive of a sweep \(no manifest\.json\)"):
        merged(lab, tmp_path / "foreign.zip")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UserError, match="text: cut off, or no archive of a sweep"):
        merged(lab, tmp_path / "text")
    with pytest.raises(UserError, match=r"^cannot read .*absent: No such file"):
        merged(lab, tmp_path / "absent")
    with pytest.raises(UserError, match=r"^cannot read .*: Is a directory"):
        merged(lab, tmp_path)
    assert not lab.root.exists()


def test_a_plan_that_is_none_is_refused(archive: Path, lab: Lab) -> None:
    for text in (b"{}", b'{"format": 1, "name": "x", "trials": [{"spec": 3}]}', b"[" * 9999):
        rewritten(
            archive,
            lambda entries, _, text=text: [  # type: ignore[misc]
                (e, text if e.filename == "sweep/plan.json" else b) for e, b in entries
            ],
        )
        with pytest.raises(UserError, match=r"sweep/plan\.json is no plan of this version"):
            merged(lab, archive)


def test_an_archive_larger_than_the_free_disk_is_refused_beforehand(
    archive: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(container.shutil, "disk_usage", lambda path: usage(9, 8, 1000))
    with pytest.raises(
        DiskFull, match=r"unpacked, 1e\+03 B are free in|unpacked, 1 kB are free in"
    ):
        merged(lab, archive)
    assert not lab.root.exists()


AT = """
import os, signal
from tread_lab.records import archive, sweep_archive
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
        ("archive.Archive._chunks", 20, 0),
        ("sweep_archive._move", 1, 0),
        ("sweep_archive._move", 3, 2),
        ("sweep_archive._merge_sweep", 1, 4),
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
    assert again.runs == {name: count for name, count in ((KEPT, runs), (NEW, 4 - runs)) if count}
    unmarked = {k: v for k, v in records(lab).items() if not k.endswith("/imported.json")}
    assert unmarked == records(source)
    assert not (lab.root / STAGE).exists()


def test_a_sweep_at_work_is_not_exported(source: Lab, tmp_path: Path) -> None:
    out, sweep, run = tmp_path / "a.zip", source.sweep("placement"), source.runs()[2]
    for folder in (sweep, run):
        with folder.lock(), pytest.raises(UserError) as refusal:
            packed(source, out)
        assert f"{folder.name} is in use by another process" in str(refusal.value)
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
    with pytest.raises(UserError, match=f"{path} is damaged .checksum.; .*--without-weights"):
        packed(source, tmp_path / "b.zip")
    assert [p.name for p in tmp_path.glob("*.zip")] == ["a.zip"]
    assert packed(source, tmp_path / "b.zip", weights=False).runs[PACKED] == 4


def interrupted(source: Lab, lab: Lab, steps: int) -> RunFolder:
    """The lab's own record of the source's first run, as far as some step."""
    run = lab.run(source.runs()[0].name)
    with run.log() as log:
        for step in range(1, steps + 1):
            log(step, loss=1.0)
    return run


def test_of_a_run_in_both_the_further_one_stays(source: Lab, archive: Path, lab: Lab) -> None:
    run = interrupted(source, lab, 3)
    run.remarks.add_note("mine")
    assert merged(lab, archive).runs == {TAKEN: 1, NEW: 3}
    assert run_status(run) == run_status(source.run(run.name))
    assert run.remarks.notes == ["mine"]


@pytest.mark.parametrize(
    ("state", "own", "brought", "became", "lost"),
    [
        ("partial", [3], [], HAS_WEIGHTS, "3"),
        ("partial", [2, 3], [], HAS_WEIGHTS, "2 and 3"),
        ("partial", [3], [1], HAS_WEIGHTS, "3"),
        ("partial", [2, 3], [400], HAS_WEIGHTS, "2"),  # which people have asked to keep
        ("partial", [3], [400], TAKEN, ""),
        ("partial", [2, 3], [2, 400], TAKEN, ""),
        ("partial", [], [], TAKEN, ""),
        ("completed", [400], [], KEPT, ""),
        ("completed", [], [400], KEPT, ""),
    ],
)
def test_an_import_costs_the_lab_no_weights(
    state: str,
    own: list[int],
    brought: list[int],
    became: str,
    lost: str,
    source: Lab,
    lab: Lab,
    tmp_path: Path,
) -> None:
    theirs, run = source.runs()[0], interrupted(source, lab, 3)
    shutil.rmtree(theirs.checkpoints)
    for step in brought:
        checkpoint(theirs, step=step)
    run.keep_steps([2, 3], asked=[2])
    mine = [checkpoint(run, step=step) for step in own]
    if state == "completed":
        run.finish(RunState.COMPLETED, step=400)
    packed(source, tmp_path / "a.zip")
    transfer = merged(lab, tmp_path / "a.zip")
    assert transfer.runs == {became: 1, NEW: 3}
    assert became == TAKEN or all(path.exists() for path in mine)
    line = (
        f"run {run.name} stays at step 3: the archive has it at step 400 without the weights of"
        f" step {lost}, which this lab has; export it with weights, or delete {run.checkpoints},"
        " then import again"
    )
    assert transfer.lines == ((line,) if became == HAS_WEIGHTS else ())


def test_a_request_to_stop_is_no_progress(source: Lab, lab: Lab, tmp_path: Path) -> None:
    theirs = source.runs()[2]
    theirs.reopen()
    theirs.remarks.add("stop", "enough")
    assert theirs.state() == RunState.STOPPED and theirs.result() is None
    packed(source, tmp_path / "a.zip")
    mine = lab.run(theirs.name)
    mine.create(theirs.spec())
    with mine.log() as log:
        log(theirs.step() + 100, loss=1.0)
    assert merged(lab, tmp_path / "a.zip").runs[KEPT] == 1
    assert mine.step() == theirs.step() + 100


def test_a_run_that_the_lab_has_as_far_is_kept(source: Lab, archive: Path, lab: Lab) -> None:
    run = interrupted(source, lab, 3)
    run.finish(RunState.COMPLETED, step=400, metrics={"own": 1})
    before = records(lab)
    assert merged(lab, archive).runs == {KEPT: 1, NEW: 3}
    assert before.items() <= records(lab).items()
    assert (run.result() or {})["metrics"] == {"own": 1} and not list(run.evaluations())


def test_a_run_that_is_at_work_in_the_lab_is_kept(source: Lab, archive: Path, lab: Lab) -> None:
    run = interrupted(source, lab, 3)
    with run.lock():
        assert merged(lab, archive).runs == {BUSY: 1, NEW: 3}
    assert run.step() == 3


def test_a_run_of_the_same_execution_gets_what_the_lab_lacks(
    source: Lab, archive: Path, lab: Lab, tmp_path: Path
) -> None:
    packed(source, tmp_path / "light.zip", weights=False)
    merged(lab, tmp_path / "light.zip")
    first, second, third, _ = lab.runs()
    shutil.rmtree(next(third.evaluations()).path)
    assert merged(lab, archive).runs == {ADDED: 3, KEPT: 1}
    assert len(list(third.evaluations())) == 3
    assert [run.lacks_weights for run in (first, second, third)] == [False, False, True]
    second_checkpoint = next(second.checkpoints.iterdir())
    second_checkpoint.unlink()
    checkpoint(second, step=300)
    assert merged(lab, archive).runs == {KEPT: 4} and not second_checkpoint.exists()


def test_another_sweep_of_the_same_name_is_refused_unless_it_gets_another_name(
    source: Lab, archive: Path, lab: Lab
) -> None:
    write_sweep(lab.root, small(routes=((1, 2),), seeds=(5,)))
    before = records(lab)
    with pytest.raises(UserError) as refusal:
        merged(lab, archive)
    assert "sweep placement of this lab has another plan: " in str(refusal.value)
    assert "--as NAME imports it under another name" in str(refusal.value)
    assert records(lab) == before
    with pytest.raises(UserError, match=r"'\.\./x' is not a name"):
        merged(lab, archive, "../x")
    assert merged(lab, archive, "theirs").sweep == "theirs"
    assert lab.sweeps() == ["placement", "theirs"]
    assert lab.sweep("theirs").plan().name == "theirs"
    theirs, ours = trials_frame(lab, "theirs"), trials_frame(source, "placement")
    assert theirs.drop(columns="sweep", errors="ignore").equals(
        ours.drop(columns="sweep", errors="ignore")
    )


def test_a_plan_that_goes_further_replaces_the_labs_and_never_the_other_way_round(
    lab: Lab, tmp_path: Path
) -> None:
    two = write_sweep(tmp_path / "two", small(routes=((0, 4),)))
    three = write_sweep(tmp_path / "three", small(routes=((0, 4), (2, 8))))
    packed(two, tmp_path / "two.zip")
    packed(three, tmp_path / "three.zip")
    sweep = lab.sweep("placement")
    for name, runs in (("two", 2), ("three", 3), ("two", 3)):
        merged(lab, tmp_path / f"{name}.zip")
        assert len(sweep.plan().trials) == runs and not sweep.drawn_path.exists()
        sweep.remarks.add_note(f"after {name}")
        sweep.drawn_path.touch()
    assert sweep.remarks.notes == ["after two", "after three", "after two"]
    own = {f"runs/{r.name}/imported.json" for r in lab.runs()}
    own |= {f"sweeps/placement/{name}" for name in ("plans/0001.json", "remarks.jsonl", "drawn")}
    assert records(lab).keys() - own == records(three).keys()


def test_runs_that_compare_with_another_file_of_the_same_name_are_refused(
    archive: Path, lab: Lab
) -> None:
    write_json(lab.root / "references" / "coco.json", {"sha256": "b" * 64, "file": "/y"})
    with pytest.raises(UserError, match="another file than this lab's as reference coco; import"):
        merged(lab, archive)
    assert lab.runs() == [] and lab.sweeps() == []


def test_records_of_earlier_versions_are_read_where_they_arrive(lab: Lab, tmp_path: Path) -> None:
    source = write_sweep(tmp_path / "source", small())
    run = source.runs()[0]
    write_text(run.path / "spec.yaml", "model: DiT-S/2\nroutes: [2->8]\n")
    write_text(run.path / "keep_steps.json", "[25]")
    folder = next(run.evaluations())
    tree = {"spec": {"kind": "samples", "metrics": ["fid"]}, "metrics": {"fid@10k": 3.0}}
    write_text(folder.path / "metrics.json", json.dumps(tree))
    packed(source, tmp_path / "a.zip")
    merged(lab, tmp_path / "a.zip")
    here = lab.run(run.name)
    assert here.spec() == run.spec() and here.kept_steps() == {25}
    assert {"fid[heldout]@10k": 3.0} in [(e.read() or {})["metrics"] for e in here.evaluations()]


def test_two_imports_into_one_lab_do_not_meet(archive: Path, lab: Lab) -> None:
    first = import_sweep(lab, archive)
    next(first)
    with pytest.raises(UserError, match=r"the import into .*lab is in use by another process"):
        merged(lab, archive)
    assert through(first).runs == {NEW: 4}


def test_a_disk_that_fills_is_told_and_nothing_is_left(
    archive: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sweep_archive.os, "sync", full)
    with pytest.raises((Unavailable, OSError)):
        merged(lab, archive)
    assert list(lab.root.iterdir()) == []
