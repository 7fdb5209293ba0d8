"""Each shipped experiment makes a real step here: its recipe on a small network, one sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docs.pages import ROOT
from tests.made_data import write_arrays
from tests.stand_ins import write_text_encoder
from tests.train.runs import CPU
from tread_lab.config import RunSpec, decode
from tread_lab.config.load import load_experiment
from tread_lab.config.model import ModelSpec
from tread_lab.data.latents import write_captions
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.trainer import train

EXPERIMENTS = sorted(ROOT.glob("experiments/*.yaml"))


def small(model: ModelSpec) -> ModelSpec:
    """The network with few blocks and heads, which are as wide: XL needs 13 GB to train."""
    heads = min(model.heads, 2)
    width = model.width // model.heads * heads if heads else 64
    return replace(model, depth=3, heads=heads, width=width)


def written(folder: Path, data: dict[str, Any]) -> str:
    """Random latents of the experiment's shape and deviation, as packed arrays."""
    shape = (24, data["channels"], data["size"], data["size"])
    scale = float(data.get("scale") or data.get("decoder_scale") or 1)
    deviation = float(data.get("deviation") or 0.5) / scale
    latents = (deviation * np.random.default_rng(0).normal(size=shape)).astype(np.float16)
    write_arrays(folder, latents, classes=data["classes"])
    write_captions(folder / "captions.jsonl", [["a dog"]] * 24)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiment_steps_on_a_cpu(path: Path, tmp_path: Path) -> None:
    experiment = load_experiment(path.stem, [])
    tree: dict[str, Any] = dict(experiment.run)
    if tree["data"]["source"] != "fashion16":
        tree["data"] = {**tree["data"], "path": written(tmp_path, tree["data"])}
    if "captions" in tree:
        pytest.importorskip("transformers")
        write_text_encoder(tmp_path / "clip", width=768)
        tree["captions"] = {"encoder": tree["captions"], "path": str(tmp_path / "clip")}
    tree.setdefault("routes", ["1->1 by rows"])  # which scans take too
    spec = decode(RunSpec, tree)
    spec = replace(
        spec,
        model=small(spec.model),
        train=replace(spec.train, batch=1, steps=1),
        execution=replace(spec.execution, workers=0, checkpoint_every=100, log_every=1),
    )
    progress = list(train(spec, RunFolder(tmp_path / "run"), CPU))[-1]
    assert progress.step == 1 and np.isfinite(progress.loss)
