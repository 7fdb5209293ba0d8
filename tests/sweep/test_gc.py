"""Claims about `gc`: it frees what nothing needs, and nothing that anything needs."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.runs import evaluate, last_checkpoint
from tests.sweep.plans import carry_out, plan_of, tiny
from tread_lab.cli import main
from tread_lab.engine.assemble import trained
from tread_lab.engine.checkpoint import list_checkpoints, step_of
from tread_lab.records.lab import Lab, digest_of
from tread_lab.records.locks import exclusive
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec
from tread_lab.sweep.gc import clear, find
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.plan.storage import store_plan
from tread_lab.sweep.trial.task import Task, is_complete

CPU = torch.device("cpu")
KEEPS = {"checkpoint_every": 5, "keep_checkpoints": 3, "keep_steps": [5]}


def steps(folder: RunFolder) -> list[int]:
    return [step_of(path) for path in list_checkpoints(folder.checkpoints)]


@pytest.fixture
def finished(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of 20 steps with four checkpoints, trained once for all tests of this file."""
    spec, trained_lab = tiny(steps=20, execution=KEEPS), Lab(tmp_path_factory.getbasetemp() / "gc")
    if not trained_lab.root.exists():
        carry_out(trained_lab, Task(spec))
    shutil.copytree(trained_lab.root, lab.root)
    return lab.run_of(spec)


@pytest.fixture
def sampled(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A finished run and its four images, made once for all tests of this file."""
    images = decode(SamplesSpec, {"count": 4, "sampler": {"steps": 2, "sigma_max": 10}})
    task, made = Task(tiny(steps=4), (images,)), Lab(tmp_path_factory.getbasetemp() / "gc-sampled")
    if not made.root.exists():
        carry_out(made, task)
    shutil.copytree(made.root, lab.root)
    return task


def planned(lab: Lab, spec: RunSpec, name: str = "s", images: int = 8) -> Plan:
    evaluate = [{"heldout_loss": {"images": images, "levels": 2}}]
    plan = plan_of(spec, name, axes={"route": ["1->2"]}, baseline=None, evaluate=evaluate)
    store_plan(lab.sweep(name), plan)
    return plan


def test_a_finished_run_keeps_its_last_and_its_kept_weights_and_can_still_do_everything(
    lab: Lab, finished: RunFolder
) -> None:
    folder, spec = finished, finished.spec()
    assert steps(folder) == [20, 15, 10, 5]
    before = last_checkpoint(folder)
    litter = find(lab)
    assert steps(folder) == [20, 15, 10, 5]  # looking changes nothing
    kinds = sorted((item.what, step_of(item.path)) for item in litter)
    assert kinds == [
        ("earlier checkpoints", 10),
        ("earlier checkpoints", 15),
        ("optimizer state", 5),
        ("optimizer state", 20),
    ]
    disk = sum(path.stat().st_size for path in folder.checkpoints.iterdir())
    freed = clear(lab, litter)
    assert disk - sum(p.stat().st_size for p in folder.checkpoints.iterdir()) == freed > disk / 2
    assert sum(item.bytes for item in litter) == pytest.approx(freed, abs=32)  # as was announced
    after = last_checkpoint(folder)
    assert steps(folder) == [20, 5]
    for part in ("model", "ema"):
        kept, old = after.part(part), before.part(part)
        assert kept.keys() == old.keys() and all(torch.equal(kept[n], old[n]) for n in kept)
    assert after.facts == before.facts and find(lab) == []
    assert trained(folder, CPU, step=5).step == 5
    evaluate(folder, decode(HeldoutSpec, {"images": 8, "levels": 2}), CPU)
    child = decode(RunSpec, {**encode(tiny(steps=4)), "init_from": {"run": encode(spec)}})
    carry_out(lab, Task(child))
    assert lab.run_of(child).state() == "completed"
    assert is_complete(lab, Task(spec)) and len(folder.attempts.read()) == 1


def test_steps_that_a_later_attempt_was_asked_to_keep_stay(lab: Lab) -> None:
    fast = {"checkpoint_every": 5, "keep_checkpoints": 9}
    folder = lab.run_of(tiny(execution=fast))
    folder.create(tiny(execution=fast))
    carry_out(lab, Task(tiny(execution={**fast, "keep_steps": [10]})))
    clear(lab, find(lab))
    assert steps(folder) == [20, 10]


@pytest.mark.parametrize("planned_only", [True, False])
def test_a_checkpoint_that_is_the_file_another_run_starts_from_stays(
    lab: Lab, finished: RunFolder, planned_only: bool
) -> None:
    last, _, earlier, _ = list_checkpoints(finished.checkpoints)
    for path in (last, earlier):
        start = {"file": str(path.resolve()), "digest": digest_of(path)}
        child = decode(RunSpec, {**encode(tiny(steps=4)), "init_from": start})
        if planned_only:
            planned(lab, child, path.stem)
        else:
            lab.run_of(child).create(child)
    clear(lab, find(lab))
    assert steps(finished) == [20, 10, 5] and last.exists() and earlier.exists()


def test_a_run_that_is_not_measured_as_planned_keeps_everything(lab: Lab) -> None:
    plan = planned(lab, tiny(steps=20, execution=KEEPS))
    (task,) = plan.tasks
    carry_out(lab, Task(task.spec))
    assert find(lab) == []
    folder = lab.run(task.run)
    folder.reopen()
    folder.finish(RunState.DIVERGED, step=20)  # such a run is never measured
    assert len(find(lab)) == 4
    folder.reopen()
    folder.finish(RunState.COMPLETED, step=20)
    carry_out(lab, task)
    assert len(find(lab)) == 4
    planned(lab, folder.spec(), "other", images=16)  # what any sweep plans for it counts
    assert find(lab) == []


@pytest.mark.parametrize("state", ["interrupted", "failed", "running", "damaged", "unreadable"])
def test_what_may_go_on_keeps_everything(lab: Lab, finished: RunFolder, state: str) -> None:
    folder, litter = finished, find(lab)
    assert len(litter) == 4
    if state == "damaged":
        folder.log_path.write_text("")
        assert folder.damaged() == ["log.jsonl"] and find(lab) == []
    elif state == "unreadable":  # any step may be one to keep, and any cache one that it reads
        for path in folder.path.glob("*spec*"):
            path.write_text("{")
        folder.finish(RunState.COMPLETED, step=20)  # nothing tells that it was another
        assert {item.what for item in find(lab)} == {"optimizer state"}
        clear(lab, find(lab))
    elif state == "running":
        with folder.lock():
            assert find(lab) == [] and clear(lab, litter) == 0
    else:
        folder.reopen()
        if state == "failed":
            folder.finish(RunState.FAILED, kind="exception")
        assert find(lab) == [] and clear(lab, litter) == 0
    assert steps(folder) == [20, 15, 10, 5]


def test_no_weights_go_where_those_that_stay_are_damaged(lab: Lab, finished: RunFolder) -> None:
    """What is kept is proved first: else a good checkpoint went and a damaged one stayed."""
    removable, newest = find(lab), list_checkpoints(finished.checkpoints)[0]
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    assert clear(lab, removable) == 0 and steps(finished) == [20, 15, 10, 5]


def test_a_damaged_plan_disables_its_sweep_alone_and_no_run_that_may_be_in_it_loses_weights(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(lab, *planned(lab, tiny(steps=20, execution=KEEPS)).tasks)
    damaged = lab.sweep("damaged").plan_path
    damaged.parent.mkdir()
    damaged.write_text(lab.sweep("s").plan_path.read_text().replace("0.0", "2.0", 1))
    half = lab.runs()[0].path / ".half.x1"
    half.write_text("half")
    for command, answer in (("status", "s 1 1 completed"), ("gc", "unfinished files 1 4 B")):
        assert main([command, "--root", str(lab.root)]) == 2
        printed = capsys.readouterr()
        assert f"sweep damaged: {damaged} is damaged" in printed.err
        assert answer in " ".join(printed.out.split())
    assert [item.path for item in find(lab)] == [half]
    damaged.unlink()
    assert len(find(lab)) == 5


def test_what_killed_processes_were_writing_goes(lab: Lab) -> None:
    spec = tiny(steps=4)
    folder = lab.run_of(spec)
    carry_out(lab, Task(spec))
    clear(lab, find(lab))
    orphans = [folder.path / ".result.json.abc", folder.checkpoints / ".staging.safetensors.x1"]
    orphans += [folder.checkpoints / "staging.safetensors"]
    (lab.root / "ray" / "old").mkdir(parents=True)
    files: list[Any] = [*orphans, lab.root / "ray" / "old" / "x"]
    for path in files:
        path.write_text("half")
    empty, stacks = folder.stack_dump(1), folder.stack_dump(2)
    empty.touch()  # of a watchdog whose process was killed
    stacks.write_text("where it stood")
    found = find(lab)
    assert sorted(item.what for item in found) == ["scratch"] + ["unfinished files"] * 4
    orphans[0].unlink()  # its process was faster
    assert clear(lab, found) == 4 * len(files)
    assert not any(path.exists() for path in (*files, empty)) and stacks.exists()
    assert folder.state() == "completed"
    folder.reopen()  # of a run that may go on, too
    part = folder.evaluation(SamplesSpec(count=4)).path / "parts" / "00000.safetensors"
    part.parent.mkdir(parents=True)
    for path in (orphans[0], part):
        path.write_text("half")
    assert [item.path for item in find(lab)] == [orphans[0]]
    folder.evaluation(SamplesSpec(count=4)).write(SamplesSpec(count=4), {})
    assert {item.path for item in find(lab)} == {orphans[0], part}  # the evaluation is done


def test_what_cannot_be_removed_is_named_and_does_not_count_as_freed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    paths = [lab.root / "ray" / "old" / "x", lab.root / "cache" / ".features.x"]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text("half")
        os.utime(path, (0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        for item in find(lab):
            with pytest.raises(UserError, match=rf"^cannot remove {item.path}: Permission denied$"):
                clear(lab, [item])
    assert all(path.exists() for path in paths)
    monkeypatch.setattr(shutil, "rmtree", refuse)  # of a folder of somebody else
    problems: list[UserError] = []
    assert clear(lab, find(lab), problems) == len("half")
    assert list(map(str, problems)) == [f"cannot remove {lab.root / 'ray/old'}: Permission denied"]
    assert [path.exists() for path in paths] == [True, False]


@pytest.mark.parametrize(("age", "offered"), [(3590, 0), (3610, 2)])
def test_what_is_younger_than_an_hour_is_kept_as_its_driver_may_be_starting(
    lab: Lab, age: float, offered: int
) -> None:
    orphans = [lab.root / "sweeps" / "s" / ".plan.json.x1", lab.root / "cache" / ".features.x"]
    for path in orphans:
        path.parent.mkdir(parents=True)
        path.write_text("half")
    (lab.root / "runs").mkdir()
    (lab.root / "runs" / ".DS_Store").touch()  # a file that a system leaves is left alone
    (lab.root / "cache" / ".renamed.x").symlink_to("gone")  # as if it were, since it was listed
    for path in orphans:
        os.utime(path, (time.time() - age,) * 2)
    found = find(lab, samples=True)
    assert [(item.path, item.run) for item in found] == [(path, "") for path in orphans][:offered]


@pytest.mark.parametrize(
    ("left", "lock", "what"),
    [
        ("ray/now/x", "sweeps/s", "scratch"),
        (".import/new/log.jsonl", ".import", "unfinished files"),
    ],
    ids=["Ray's folder of a driver", "what an import unpacks"],
)
def test_what_a_living_process_works_with_is_kept_and_goes_after_it(
    lab: Lab, left: str, lock: str, what: str
) -> None:
    (lab.root / left).parent.mkdir(parents=True)
    (lab.root / left).write_text("1234")
    with exclusive(lab.root / lock / ".claim", "its owner"):
        assert find(lab) == []
    (item,) = find(lab)
    assert (item.what, item.bytes) == (what, 4)
    clear(lab, [item])
    assert not (lab.root / left).exists()


def test_nothing_behind_a_link_is_the_labs(lab: Lab, finished: RunFolder, tmp_path: Path) -> None:
    for inside in (finished.checkpoints, lab.root / "ray"):
        outside = tmp_path / "disk" / inside.name
        outside.mkdir(parents=True)
        (outside / "x").write_text("mine")
        if inside.exists():
            shutil.copytree(inside, outside, dirs_exist_ok=True)
            shutil.rmtree(inside)
        inside.symlink_to(outside)
    (finished.path / ".half.x1").symlink_to(finished.log_path)
    assert len(steps(finished)) == 4 and find(lab, samples=True) == []


def test_samples_of_finished_evaluations_go_and_their_metrics_stay(
    lab: Lab, sampled: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gc", "--yes", "--root", str(lab.root)]) == 0
    assert "of samples stay; `tread-lab gc --samples`" in capsys.readouterr().out
    lab.run(sampled.run).reopen()
    assert find(lab, samples=True) == []  # it may go on
    lab.run(sampled.run).finish(RunState.COMPLETED, step=4)
    place = lab.run(sampled.run).evaluation(sampled.evaluations[0])
    size, record = (place.path / "samples.npz").stat().st_size, place.read()
    assert find(lab) == []  # only where they are asked for
    text = (place.path / "metrics.json").read_text()
    (place.path / "metrics.json").write_text("{")
    assert find(lab, samples=True) == []  # their metrics are damaged
    (place.path / "metrics.json").write_text(text)
    (item,) = find(lab, samples=True)
    assert (item.what, item.path, item.bytes) == ("samples", place.path / "samples.npz", size)
    assert main(["gc", "--yes", "--samples", "--root", str(lab.root)]) == 0
    assert not item.path.exists()
    assert place.done and place.read() == record and (place.path / "grid.png").exists()
    assert is_complete(lab, sampled) and find(lab, samples=True) == []
