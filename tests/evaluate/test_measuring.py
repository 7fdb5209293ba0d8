"""Images of an evaluation: decoded in batches where they were drawn, references only once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.runs import CPU, evaluate, lab_with_a_run, last_checkpoint, small_run
from tread_lab.config import SamplesSpec, UserError, decode
from tread_lab.config.evaluation import EvaluationDefaults, decode_evaluations
from tread_lab.config.labels import MetricNames
from tread_lab.data.embedded import Fashion16
from tread_lab.evaluate.extraction import Extractor
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.train.checkpoint import save

FEW = {"count": 100, "sampler": {"steps": 1, "sigma_max": 10}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab with one trained run."""
    return lab_with_a_run(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def folder(lab: Lab) -> RunFolder:
    return lab.run_of(small_run())


def test_references_are_decoded_once(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 held-out images; a second evaluation decodes its own 100 alone."""
    pytest.importorskip("torch_fidelity")
    decoded: list[int] = []
    in_tf32: dict[str, set[bool]] = {"pixels": set(), "forward": set()}

    def watch(cls: type, method: str) -> None:
        original = getattr(cls, method)

        def watched(self: Any, x_BCHW: Tensor) -> Any:
            decoded.append(len(x_BCHW) if method == "pixels" else 0)
            in_tf32[method].add(torch.backends.cuda.matmul.allow_tf32)
            return original(self, x_BCHW)

        monkeypatch.setattr(cls, method, watched)

    watch(Fashion16, "pixels")
    watch(Extractor, "forward")
    for seed, count in ((1, 10_100), (2, 100)):
        tree = {**FEW, "metrics": ["fd"], "sampler": {**FEW["sampler"], "seed": seed}}  # type: ignore[dict-item]
        decoded.clear()
        evaluate(folder, decode(SamplesSpec, tree), CPU, cache=tmp_path)
        assert sum(decoded) == count
    assert in_tf32 == {"pixels": {True}, "forward": {False}}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("samples", r"^samples: an image is not finite; draw it with less guidance, in a higher"),
        (
            "heldout_loss",
            r"^evaluate: heldout_loss must be finite, .* of step 6",
        ),
        ("layer_similarity", r"^evaluate: layer_similarity must be finite"),
    ],
)
def test_nan_weights_give_no_numbers(
    kind: str, line: str, folder: RunFolder, tmp_path: Path
) -> None:
    """Their images were black ones, with a distance of their own."""
    run = RunFolder(shutil.copytree(folder.path, tmp_path / "run"))
    last = last_checkpoint(run)
    wrong = {name: x * torch.nan for name, x in last.tensors.items()}
    save(run.checkpoints, replace(last, tensors=wrong), keep=1)
    tree: Any = FEW if kind == "samples" else {"images": 2, "levels": 2}
    (asked,) = decode_evaluations([{kind: tree}])
    run.reopen()
    with pytest.raises(UserError, match=line):
        evaluate(run, asked, CPU)
    assert not run.evaluation(asked).done, "the run may go on"
    run.finish(RunState.COMPLETED, step=6)
    for _ in range(2):  # the second time from the record, so that a sweep has no more to do
        with pytest.raises(UserError, match=line):
            evaluate(run, asked, CPU)
        assert run.evaluation(asked).done


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with the weights of its second step, in which every block acts."""
    model = {"depth": 4, "width": 16, "heads": 2, "patch": 4, "init": "official_code"}
    run = small_run(execution={"keep_steps": [2]}, model=model)
    return lab_with_a_run(tmp_path_factory.mktemp("kept"), run).run_of(run)


def test_sets_are_evaluations_of_disjoint_seeds(kept: RunFolder, tmp_path: Path) -> None:
    """Batches of 64 images straddle sets of 100; the number is the mean of the three."""

    def of(name: str, seed: int) -> tuple[dict[str, float], dict[str, Any]]:
        sampler = {"steps": 2, "sigma_max": 10, "seed": seed}
        (spec,) = decode_evaluations([{name: {"sampler": sampler}}])
        return evaluate(kept, spec, CPU, cache=tmp_path), kept.evaluation(spec).read() or {}

    name = "fd[fashion16-v1]@100"
    each = [of("fd@100", seed)[0][name] for seed in (7, 107, 207)]
    assert len(set(each)) == 3
    metrics, record = of("fd@100 x3", 7)
    assert record["sets"] == {name: pytest.approx(each, rel=1e-5)}
    assert metrics[name] == pytest.approx(sum(each) / 3)
    names = MetricNames(EvaluationDefaults(sampler={"steps": 2, "sigma_max": 10, "seed": 7}))
    assert names.name(name, "signature", record["spec"]) == f"{name} x3"
