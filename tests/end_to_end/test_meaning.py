"""A name of a metric means one thing; published networks are measured under guidance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tread_lab.cli.evaluate_runs import to_measure
from tread_lab.cli.main import main
from tread_lab.config import SamplesSpec
from tread_lab.records.lab import Lab

SMALL = ["model.width=16", "model.heads=1", "model.depth=4", "train.steps=3"]
SMALL += ["train.warmup=0", "train.ema=0.5"]


def run(*words: str) -> None:
    assert main(list(words)) == 0


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    return list(tree if isinstance(tree, list) else tree["metrics"])


def names(rows: list[dict[str, Any]]) -> set[str]:
    return {name for row in rows for name in row if "@" in name}


def test_metric_name_is_of_the_experiment(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("train", "tiny", *SMALL, "execution.keep_steps=[]", "evaluate=[heldout_loss]")
    (folder,) = Lab.existing("lab").runs()
    for sampler in ["sampler.steps=3"], ["sampler.seed=7"], []:
        rows = answers(capsys, "evaluate", folder.name, "fd@100", *sampler)
        said = "".join(f" {word.removeprefix('sampler.')}" for word in sampler)
        assert names(rows) == {f"fd[fashion16-v1]@100{said}"}
    evaluations = [e.read() or {} for e in folder.evaluations()]
    steps = [t["spec"]["sampler"]["steps"] for t in evaluations if "sampler" in t["spec"]]
    assert sorted(steps) == [3, 6, 6]
    assert len(names(answers(capsys, "status", folder.name))) == 3
    run("export", folder.name, "out")
    capsys.readouterr()
    (row,) = answers(capsys, "evaluate", "out", "fd@100")
    assert row["fd[fashion16-v1]@100"] == rows[0]["fd[fashion16-v1]@100"]
    rows = answers(capsys, "evaluate", folder.name, "fd@100", "fd@120", "sampler.labels=balanced")
    assert names(rows) == {f"fd[fashion16-v1]@{n} labels=balanced" for n in (100, 120)}


def test_run_has_its_sweeps_reference(
    in_folder: Path,
) -> None:
    words = [*SMALL, "axes.train.lr=[1e-3]", "baseline=null", "execution.keep_steps=[]"]
    run(
        "sweep", "tiny", *words, "reference=coco", "evaluate=[heldout_loss]", "--executor", "inline"
    )
    lab = Lab.existing("lab")
    (folder,) = lab.runs()
    measurements, *_ = to_measure(lab, folder.name, ["fid@100"], None)
    ((_, (spec,)),) = measurements
    assert isinstance(spec, SamplesSpec) and spec.reference is not None
    assert spec.reference.name == "coco"
