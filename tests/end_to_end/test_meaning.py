"""A name of a metric means one thing; published networks are measured under guidance."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.backbones.published_dit import published_shapes, sit_state
from tests.made_data import normal, write_arrays
from tread_lab.backbones.parts import sincos_positions
from tread_lab.cli.evaluate_runs import to_measure
from tread_lab.cli.main import main
from tread_lab.config import SamplesSpec
from tread_lab.config.yaml_text import dump_yaml, load_yaml
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


def test_a_name_is_of_the_experiment_whatever_was_measured(
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


def test_a_run_of_a_sweep_has_the_reference_of_the_sweep(
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


STEPS_0 = ["model=DiT-2x16x2/4", "train.steps=0", "evaluate=[samples]"]
GUIDED = "guidance: {weight: 1.5, channels: first3}"
SIT = ["process=flow", "init_from.published_as=sit"]
RECIPES = {
    "dit": ["process=ddpm", f"sampler={{solver: ddpm, steps: 4, {GUIDED}}}"],
    "sit": [*SIT, f"sampler={{solver: sde, steps: 4, {GUIDED}}}"],
}


@pytest.mark.filterwarnings("ignore:init_from.file")
@pytest.mark.parametrize("network", RECIPES)
def test_a_published_network_is_measured_under_guidance(
    network: str, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the recipes of the documentation, in a small network."""
    data = write_arrays(in_folder / "latents", normal(), classes=7)
    state = sit_state(2, 16, 4, 8 // 4, 4, 7)
    if network == "dit":
        shapes = published_shapes(2, 16, 4, 4, 4, 7)
        state = {name: 0.1 * torch.randn(shape) for name, shape in shapes.items()}
        state["pos_embed"] = sincos_positions(2, 16)[None]
    torch.save({"ema": state}, "published.pt")
    of_data = [f"data.path={data}", "data.size=8", "data.classes=7", "data.scale=1"]
    start = ["init_from.file=published.pt", *STEPS_0, *RECIPES[network]]
    run("train", "xl2_imagenet256", *of_data, *start, "precision=fp32")
    (folder,) = Lab.existing("lab").runs()
    (record,) = [e.read() or {} for e in folder.evaluations()]
    assert record["spec"]["sampler"]["guidance"]["weight"] == 1.5
    drawn = np.load(next(folder.path.glob("evaluations/*/samples.npz")))["arr_0"]
    run("export", folder.name, "out")
    spec = load_yaml(Path("out/spec.yaml").read_text(), "spec")
    spec["data"]["path"] = str(data)  # as whoever measures an export writes it
    Path("out/spec.yaml").write_text(dump_yaml(spec))
    run("evaluate", "out", "samples")
    again = np.load(next(Path("out").glob("evaluations/*/samples.npz")))["arr_0"]
    assert np.array_equal(drawn, again)
    plain = ["samples", "sampler.guidance=1"]
    assert names(answers(capsys, "evaluate", folder.name, *plain)) == set()


@pytest.fixture(params=[0o022, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_every_file_is_readable_by_the_umask(umask: int, in_folder: Path) -> None:
    """Checkpoints, images, arrays, records, caches, plans and figures; exports and data."""
    words = [*SMALL, "axes.train.lr=[1e-3]", "baseline=null", "execution.keep_steps=[1]"]
    measured = "evaluate=[heldout_loss,layer_similarity,fd@100]"
    run("sweep", "tiny", *words, measured, "--executor", "inline", "--tracker=none")
    (folder,) = Lab.existing("lab").runs()
    run("export", folder.name, "out")
    files = [path for path in in_folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".safetensors", ".npz", ".png", ".json", ".jsonl"}
    modes = {str(path): stat.S_IMODE(path.stat().st_mode) & 0o666 for path in files}
    assert {path for path, mode in modes.items() if mode != 0o666 & ~umask} == set()
