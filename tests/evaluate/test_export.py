"""Exported weights: the names of public code, a card for the hub, the same numbers by path."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.backbones.published_dit import published_shapes
from tests.train.runs import CPU, evaluate, lab_with_a_run, small_run
from tread_lab.backbones.published_weights import read_tensors
from tread_lab.cli.main import main
from tread_lab.config import HeldoutSpec, SamplesSpec, UserError, decode, signature
from tread_lab.evaluate.export import (
    export,
    load_exported,
    model_card,
    without_folders,
)
from tread_lab.evaluate.measuring import open_evaluations, record_of
from tread_lab.records.lab import Lab, digest_of
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.assemble import trained

RUN = small_run(execution={"keep_steps": [2], "log_every": 2})
HELDOUT = HeldoutSpec(images=8, levels=2)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = lab_with_a_run(tmp_path_factory.mktemp("lab"), RUN)
    evaluate(lab.run_of(RUN), HELDOUT, CPU)
    return lab


@pytest.fixture(scope="module")
def weights(lab: Lab) -> Path:
    out = lab.root / "weights"
    assert main(["export", signature(RUN)[:6], str(out), "--root", str(lab.root)]) == 0
    return out


def test_dit_has_the_public_tensor_names(lab: Lab, weights: Path) -> None:
    exported = read_tensors(weights / "model.safetensors")
    ours = trained(lab.run_of(RUN), CPU).network.state_dict()
    assert set(exported) == set(published_shapes(4, 16, 4, 16, 1, 10))
    assert all(torch.equal(exported[name], ours[name]) for name in ours)


def test_card_names_no_folder(lab: Lab, weights: Path) -> None:
    folder, card = lab.run_of(RUN), (weights / "README.md").read_text()
    assert card == model_card(folder, without_folders(folder.spec()), step=6)
    assert str(lab.root) not in card + (weights / "config.json").read_text()
    assert json.loads((weights / "config.json").read_text())["model_type"] == "dit"


def test_results_count_for_their_weights_alone(lab: Lab, weights: Path, tmp_path: Path) -> None:
    """Newer weights are put into the folder of an export that has been measured."""
    exported = RunFolder(shutil.copytree(weights, tmp_path / "weights"))
    asked = [(exported, [HELDOUT])]
    export(lab.run_of(RUN), early := tmp_path / "early", step=2)

    def measured() -> tuple[dict[str, float], dict[str, Any]]:
        return evaluate(exported, HELDOUT, CPU), exported.evaluation(HELDOUT).read() or {}

    loss, record = measured()
    assert record["weights"] == {"6": digest_of(weights / "model.safetensors")}
    assert record_of(exported, HELDOUT) == record and not [*open_evaluations(asked)]
    shutil.copy(early / "model.safetensors", exported.path)
    assert record_of(exported, HELDOUT) is None and [*open_evaluations(asked)]
    other, record = measured()
    assert other != loss and other == evaluate(RunFolder(early), HELDOUT, CPU)
    assert record["weights"] == {"2": digest_of(early / "model.safetensors")}


def test_kept_step_is_exported(lab: Lab, tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(lab.run_of(RUN).path, tmp_path / "run"))
    export(folder, tmp_path / "early", step=2)
    model = load_exported(tmp_path / "early")
    early = trained(folder, CPU, step=2).network.state_dict()
    assert model.step == 2
    assert all(torch.equal(t, early[n]) for n, t in model.network.state_dict().items())
    assert "Nothing was measured at this step." in (tmp_path / "early/README.md").read_text()
    with pytest.raises(UserError, match="which has steps 2, 6"):
        export(folder, tmp_path / "absent", step=3)
    assert not (tmp_path / "absent").exists()
    auto = {"steps": 1, "guidance": {"weight": 2, "weak": {"step": 2}}}
    drawn = decode(SamplesSpec, {"count": 2, "sampler": auto})
    export(folder, tmp_path / "last")
    with pytest.raises(UserError, match="step must be 6, the only one of this folder, got 2"):
        evaluate(RunFolder(tmp_path / "last"), drawn, CPU)
