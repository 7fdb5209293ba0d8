"""A node says of itself what would harm runs there; it is judged beside the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from tread_lab.prepare.required_files import STANDS_IN
from tread_lab.records.lab import Lab
from tread_lab.records.locks import is_taken
from tread_lab.specs import RunSpec
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.sweep.execution.health import (
    CHECKS,
    UNAVAILABLE,
    WARNING,
    WRONG,
    NodeHealth,
    health,
    judge,
    of_driver,
    question,
)
from tread_lab.sweep.trial.task import Task

MADE = {"code": "a" * 16, "package torch": "2.15", "weights inception": "b" * 64}
WELL = NodeHealth(
    made_with=MADE,
    absent={"Inception-2015": "", "latents": None},
    free={"/lab": 10**12},
)
ABSENT = {"Inception-2015": "no Inception weights at /x", "latents": None}
ONE_WRONG = "1 of 1, 1 wrong"


@pytest.mark.parametrize(
    ("check", "change", "code", "says", "cell"),
    [
        ("code", {"made_with": {**MADE, "code": "c" * 16}}, WRONG, "code is cccc", "c" * 8),
        ("packages", {"made_with": {**MADE, "package torch": "2"}}, WRONG, "is 2, and", "torch 2"),
        ("files", {"made_with": MADE | {"weights inception": "c"}}, WRONG, "copy the", ONE_WRONG),
        ("CUDA", {"gpu_error": "no kernel image"}, WRONG, "no kernel image; a torch", "none"),
        ("CUDA", {"offered": 8.0}, WRONG, "Ray offers 8 GPUs, and torch sees none; a t", "none"),
        ("CUDA", {"offered": 2.0, "gpus": ("H200",)}, WRONG, "sees 1; `ray start", "H200"),
        ("files", {"absent": ABSENT}, WRONG, "set TREAD_LAB_INCEPTION bef", "0 of 1, 1 wrong"),
        ("files", {"absent": {"Inception-2015": STANDS_IN}}, WARNING, "rehearsal alone", "0 of 1"),
        ("files", {"problems": ("no data at /y",)}, WRONG, "open runs: no data at /y", ONE_WRONG),
        ("clock", {"clock": 3600.0}, WARNING, "is 60 min ahead of the driver's", "ahead 60 min"),
        ("clock", {"clock": -86400.0}, WARNING, "24.0 h behind the driver's", "behind 24.0 h"),
        ("disk", {"free": {"/tmp": 10**6}}, WARNING, "1 MB are free in /tmp", "1 MB free"),
        ("disk", {"unwritable": "no room", "full": True}, UNAVAILABLE, "no room", "unwritable"),
        ("disk", {"unwritable": "read-only"}, WRONG, "read-only", "unwritable"),
        ("shared path", {"unseen": "x", "unlocked": "x"}, WRONG, "mount the folder", "not seen"),
        ("locks", {"unlocked": "it is free here"}, WRONG, "could write one run", "of this node"),
        ("compiler", {"uncompiled": "there is no cc"}, WARNING, "apt-get install gcc", "none"),
        ("answer", {"silent": "it does not answer"}, UNAVAILABLE, "does not answer", None),
    ],
)
def test_each_thing_that_is_wrong_is_one_line_with_a_code(
    check: str, change: dict[str, Any], code: int, says: str, cell: str | None
) -> None:
    cells, findings = judge({"driver": WELL, "node": replace(WELL, **change)}, WELL)
    assert {one.check for one in findings} == {check}
    assert all((one.node, one.code) == ("node", code) for one in findings)
    assert says in findings[0].text and "\n" not in findings[0].text
    assert cells["driver"] == {
        "code": "a" * 8, "packages": "torch 2.15", "CUDA": "none", "files": "1 of 1",
        "clock": "ok", "disk": "1 TB free", "shared path": "ok", "locks": "ok", "compiler": "ok",
    }  # fmt: skip
    assert cells["node"].get(check) == cell
    assert list(cells["node"]) == list(CHECKS)
    assert cell or set(cells["node"].values()) == {"?"}


def test_paths_and_locks_of_a_lab_that_cannot_be_written_are_not_tried() -> None:
    full = replace(WELL, unwritable="no room", full=True)
    cells, findings = judge({"driver": full}, full)
    assert {check for check, cell in cells["driver"].items() if cell == "not tried"} == {
        "shared path",
        "locks",
    }
    assert [one.check for one in findings] == ["disk"]


def test_what_differs_little_or_is_nowhere_is_not_wrong() -> None:
    nowhere = replace(WELL, absent=ABSENT, clock=29.0)
    assert judge({"driver": nowhere, "node": nowhere}, nowhere)[1] == []


def test_of_several_disks_the_fullest_is_shown() -> None:
    two = replace(WELL, free={"/lab": 10**12, "/tmp": 2 * 10**11})
    assert judge({"node": two}, WELL)[0]["node"]["disk"] == "200 GB free"


def test_a_machine_looks_at_its_own_disk_locks_and_code(tmp_path: Path) -> None:
    with question(tmp_path / "lab", []) as asked:
        _, here = of_driver(asked)
        assert asked.folder is not None and is_taken(asked.folder / "lock")
        lock = (asked.folder / "lock").read_bytes()
        (asked.folder / "lock").unlink()  # so it is for a node where locks end
        (asked.folder / "lock").write_bytes(lock)
        (asked.folder / "token").write_text("of another folder")
        elsewhere = health(asked)
    assert (here.unwritable, here.unseen, here.unlocked) == ("", "", "")
    assert here.made_with is not None and len(here.made_with["code"]) == 16
    assert "holds something else" in elsewhere.unseen and "is free here" in elsewhere.unlocked
    assert list(tmp_path.iterdir()) == []


def test_what_open_runs_lack_is_named(
    lab: Lab, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)
    evaluations = decode_evaluations(["heldout_loss", "fid[heldout]@100"])
    tasks = [Task(tiny(seed=seed), evaluations) for seed in (0, 1)]
    tasks += [Task(tiny(repa={"encoder": "dinov2-small", "path": "/no/dinov2"}))]
    with question(lab.root, tasks) as asked:
        assert len(asked.tasks) == 2  # the first two read the same files
        here = health(asked)
    metric, encoder = here.problems
    assert "TREAD_LAB_INCEPTION" in metric
    assert encoder == "repa: /no/dinov2 holds no config.json; give its folder or hub id"
    assert here.made_with is not None and "held-out data fashion16" in here.made_with


def test_each_gpu_is_tried_and_one_that_does_not_work_is_an_error_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tread_lab.sweep.execution import health as module

    def look() -> tuple[tuple[str, ...], str]:
        with question(tmp_path, []) as asked:
            here = health(asked)
        return here.gpus, here.gpu_error

    monkeypatch.setattr(module, "_NVIDIA", tmp_path)
    monkeypatch.setattr(module, "name", str)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert look() == ((), "an NVIDIA driver is here, and torch cannot use its GPUs")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    tried = Mock()
    monkeypatch.setattr(torch, "zeros", tried)
    assert look() == (("cuda:0", "cuda:1"), "")
    assert [str(made.kwargs["device"]) for made in tried.call_args_list] == ["cuda:0", "cuda:1"]
    tried.side_effect = RuntimeError("no kernel image\nmore")
    assert look() == ((), "no kernel image")
