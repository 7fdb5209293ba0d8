"""Every mistake of a user is one line that says what, where and what to do; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tread_lab.cli import main

SWEEP = """experiment: tiny
axes: {route: {start: 0..2, end: 5}}
"""
PLAN = json.dumps({"format": 1, "name": "x", "trials": []})

# name -> (files to write, arguments, what the line must say)
CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "misspelt key": ({}, "train tiny trian.steps=3", "did you mean 'train'"),
    "misspelt nested key": ({}, "train tiny train.step=3", "train: unknown key 'step'"),
    "unknown experiment": ({}, "train tinny", "did you mean 'tiny'"),
    "route outside the depth": ({}, "train tiny --route 2->12", "within blocks 0..11"),
    "route backwards": ({}, "train tiny --route 8->2", "must start before its end"),
    "routes overlap": ({}, "train tiny --route 2->6 --route 5->8", "must start after block 6"),
    "not a route": ({}, "train tiny --route 2-8", "must be a route"),
    "rate of one": ({}, "train tiny --route 2->8 --rate 1.0", "must be in [0, 1)"),
    "rate without a route": ({}, "train tiny --rate 0.5", "there is no route"),
    "negative steps": ({}, "train tiny train.steps=-5", "train.steps: must be at least 0"),
    "text for a number": ({}, "train tiny train.lr=fast", "train.lr: must be a number"),
    "infinite number": ({}, "train tiny train.lr=.inf", "finite"),
    "patch that does not divide": ({}, "train tiny model.patch=3", "must divide data.size"),
    "unknown precision": ({}, "train tiny precision=fp8", "must be one of fp32"),
    "not an override": ({}, "train tiny steps", "must be key=value"),
    "no such device": ({}, "train tiny --device gpu", "must be cpu, cuda"),
    "no data": ({}, "train s2_imagenet256", "data.path"),
    "data elsewhere": ({}, "train s2_imagenet256 data.path=nowhere", "nowhere"),
    "more cores than there are": (
        {},
        "sweep route_placement --cpus 9999",
        "--cpus: must be at most",
    ),
    "no GPU": (
        {},
        "sweep route_placement --gpus 1",
        "--gpus: must be at most 0 on this machine, got 1",
    ),
    "several GPUs a run": (
        {},
        "sweep route_placement --gpus 2",
        "--gpus: must be at most 0 on this",
    ),
    "a GPU and a half": ({}, "sweep route_placement --gpus 1.5", "--gpus: must be a whole number"),
    "time below zero": ({}, "sweep route_placement --hang-timeout -5", "number of at least 0"),
    "a sampler that nothing uses": (
        {},
        "train tiny evaluate=[heldout_loss] sampler.steps=1e8",
        "sampler.steps: must be in [1, 10000], got 100000000",
    ),
    "no threads": ({}, "train tiny --threads 0", "not positive"),
    "objective that nothing measures": (
        {},
        "sweep placement_search search.objectives=[heldot/loss]",
        "did you mean 'heldout/loss'",
    ),
    "missing sweep file": ({}, "sweep route_placment.yaml", "did you mean 'route_placement'"),
    "bad YAML": ({"s.yaml": "experiment: [tiny\nseeds: 3"}, "sweep s.yaml", "not valid YAML"),
    "empty file": ({"s.yaml": ""}, "sweep s.yaml", "s.yaml"),
    "a list": ({"s.yaml": "- 1\n- 2"}, "sweep s.yaml", "key: value"),
    "duplicate key": ({"s.yaml": "seeds: [0]\nseeds: [1]"}, "sweep s.yaml", "duplicate key"),
    "unknown sweep key": ({"s.yaml": SWEEP + "seed: [0]"}, "sweep s.yaml", "did you mean 'seeds'"),
    "equal seeds": ({"s.yaml": SWEEP + "seeds: [0, 0]"}, "sweep s.yaml", "must be distinct"),
    "unknown axis": ({"s.yaml": "experiment: tiny\naxes: {lr: [1]}"}, "sweep s.yaml", "'train.lr'"),
    "empty range": ({"s.yaml": SWEEP.replace("0..2", "3..1")}, "sweep s.yaml", "range '3..1'"),
    "misspelt name in where": ({"s.yaml": SWEEP + "where: strat > 1"}, "sweep s.yaml", "'start'"),
    "code in where": (
        {"s.yaml": SWEEP + "where: __import__('os')"},
        "sweep s.yaml",
        "not allowed here",
    ),
    "where leaves nothing": ({"s.yaml": SWEEP + "where: start > 9"}, "sweep s.yaml", "loosen it"),
    "impossible cell": ({"s.yaml": SWEEP.replace("0..2", "0..9")}, "sweep s.yaml", "by `where`"),
    "unknown evaluation": ({}, "sweep route_placement evaluate=[fid10k]", "unknown evaluation"),
    "unknown metric": ({}, "sweep route_placement evaluate=[fidd@10k]", "did you mean 'fid'"),
    "name that leaves the lab": ({}, "sweep route_placement --name ../x", "is not a name"),
    "unwritable folder": (
        {},
        "sweep route_placement --root /proc/no --tracker=none",
        "cannot write",
    ),
    "root is a file": ({"lab": "text"}, "sweep route_placement --root lab --tracker=none", "lab"),
    "unknown sweep": ({}, "figures placement", "lab does not exist"),
    "unknown run": ({}, "status abcdef", "lab does not exist"),
    "unknown command": ({}, "swep x", "invalid choice"),
    "no command": ({}, "", "required"),
    "unknown flag": ({}, "sweep route_placement --plans", "unknown argument '--plans'"),
    "unknown model": ({}, "cost --model DiT-Z/2", "did you mean"),
    "no images": ({}, "data encode nowhere out --autoencoder vae", "there is no folder nowhere"),
    "no autoencoder": ({}, "data encode x out", "--autoencoder"),
    "no latents to pack": ({}, "data pack nowhere out", "there is no nowhere"),
    "no latents to verify": ({}, "data verify .", "holds no latents"),
    "unknown source of data": ({}, "data stats . --source shard", "did you mean 'shards'"),
    "no command for data": ({}, "data", "required"),
    "damaged plan": (
        {"lab/sweeps/x/plan.json": PLAN[:22]},
        "status x",
        "plan.json: must be JSON",
    ),
    "a store that is not MLflow's": (
        {"lab/sweeps/x/plan.json": PLAN, "lab/mlflow.db": "shopping list"},
        "sync",
        "mlflow.db is not an MLflow store",
    ),
    "no concurrency": ({}, "sweep route_placement --concurrent 0", "0 is not positive"),
}


@pytest.mark.task(31)
@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_a_mistake_is_one_line_and_exit_code_2(
    case: str, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, command, expected = CASES[case]
    for name, text in files.items():
        (in_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (in_folder / name).write_text(text)
    before = sorted(in_folder.rglob("*"))
    assert main(command.split()) == 2
    _one_line(capsys, expected)
    assert sorted(in_folder.rglob("*")) == before
    assert all((in_folder / name).read_text() == text for name, text in files.items())


def test_all_mistakes_of_a_file_are_lines(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = "train: {learning_rate: 1, batch: -3}"
    (in_folder / "e.yaml").write_text(f"model: DiT-S/2\n{train}\nprecision: fp8\n")
    assert main(["train", "e.yaml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "tread-lab: train.batch: must be at least 1, got -3",
        "tread-lab: train: unknown key 'learning_rate', did you mean 'lr'?",
        "tread-lab: precision: must be one of fp32, tf32, bf16, fp16, got 'fp8'",
    ]


def _one_line(capsys: pytest.CaptureFixture[str], expected: str) -> None:
    out, err = capsys.readouterr()
    lines = err.strip().splitlines()
    assert lines[-1].startswith("tread-lab: ") and "Traceback" not in err + out
    assert sum(line.startswith("tread-lab: ") for line in lines) == 1
    assert any(part in lines[-1] for part in expected.split("|")), lines[-1]
