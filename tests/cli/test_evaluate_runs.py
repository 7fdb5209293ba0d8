"""The evaluate command measures as it is told, else as the experiment says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pretender import ended_run
from tests.sweep.plans import DEEP, plan_of, tiny
from tread_lab.cli.main import main
from tread_lab.cli.train_and_evaluate import named_evaluations, to_measure
from tread_lab.config import UserError, decode, encode
from tread_lab.config.evaluation import (
    EvaluationDefaults,
    SamplerSpec,
    SamplesSpec,
    decode_evaluations,
)
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.data.content import sha256
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.sweep.plan import Plan, make_plan, store_plan

USUAL = EvaluationDefaults(
    sampler={"steps": 7, "guidance": 3}, reference=ReferenceSpec(name="imagenet512")
)
ASKED = [  # words, reference -> steps, weight, reference
    (["fid@1k"], None, 7, 3.0, "imagenet512"),
    (["fid@1k", "sampler.guidance={weight: 2, channels: first3}"], None, 7, 2.0, "imagenet512"),
    (["fid@1k", "sampler.steps=8"], "imagenet256", 8, 3.0, "imagenet256"),
    (["fid@1k"], "heldout", 7, 3.0, None),
]


def planned(**more: Any) -> Plan:
    axes = {"route": {"start": 0, "end": "0..5"}}
    return plan_of(tiny(model=DEEP), "budgeted", **{"axes": axes, **more})


def of_experiment(lab: Lab, **sweep: Any) -> Plan:
    """A stored plan of a run whose experiment has the sampler, reference and probe of `USUAL`."""
    usual = {"sampler": USUAL.sampler, "reference": USUAL.reference, "evaluate": [ALL_OVER]}
    experiment = decode(Experiment, {"name": "tiny", "run": encode(tiny()), **usual})
    plan = make_plan("lossy", decode(SweepSpec, {"experiment": "tiny", **sweep}), experiment)
    store_plan(lab.sweep("lossy"), plan)
    return plan


ALL_OVER = {"heldout_loss": {"pick": "even"}}
OTHER = SamplesSpec(
    metrics=("fid",), count=100, sampler=SamplerSpec(steps=9), reference=ReferenceSpec(name="coco")
)


@pytest.mark.parametrize("of", ["a sweep", "a run", "an export"])
@pytest.mark.parametrize(("words", "reference", "steps", "weight", "compared"), ASKED)
def test_unsaid_settings_are_the_experiments(
    of: str, words: list[str], reference: Any, steps: int, weight: float, compared: Any, lab: Lab,
) -> None:  # fmt: skip
    plan = of_experiment(lab, evaluate=[{"samples": {"sampler": {"steps": 11}}}])
    folder = ended_run(lab, plan.tasks[0].spec, step=1)
    folder.create(plan.tasks[0].spec, plan.tasks[0].defaults)
    folder.evaluation(OTHER).write(OTHER, {"fid@100": 1.0})
    name = {"a sweep": "lossy", "a run": folder.name, "an export": str(folder.path)}[of]
    if of == "an export":
        (folder.path / "model.safetensors").touch()
    (((_, (found,)),), _) = to_measure(lab, name, words, reference)
    assert isinstance(found, SamplesSpec)
    assert (found.sampler.steps, found.sampler.guidance.weight) == (steps, weight)
    assert (found.reference.name if found.reference else None) == compared


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fd@1k", "steps=9"], "steps=9: must be a sampler field. Try sampler.steps=40"),
        (["sampler.steps=9"], "sampler: requires a metric of samples. Try fd@1k sampler.steps=40"),
        (["fd@1k", "sampler.steps=[9"], r"^'sampler.steps=\[9' line 1: must be valid YAML"),
        (["{heldout_loss: {image: 9}}"], "unknown key 'image', did you mean 'images'"),
        (["{heldout_loss: {images: 9"], "images: 9' line 1: must be valid YAML"),
    ],
)
def test_wrong_field_of_evaluation_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        named_evaluations(words, EvaluationDefaults(), None)
    assert "\n" not in str(refusal.value)


def completed(lab: Lab) -> str:
    return ended_run(lab, tiny(steps=20), step=20).name


def test_completed_runs_of_sweep_are_measured(lab: Lab) -> None:
    plan = planned()
    store_plan(lab.sweep("budgeted"), plan)
    with pytest.raises(UserError, match=r"^budgeted: must have a completed run, got none"):
        to_measure(lab, "budgeted", [], None)
    for task, state in zip(plan.tasks, (RunState.COMPLETED, RunState.FAILED, RunState.COMPLETED)):
        ended_run(lab, task.spec, state, step=1)
    found, _ = to_measure(lab, "budgeted", [], None)
    assert [folder.name for folder, _ in found] == [plan.tasks[0].run, plan.tasks[2].run]
    assert [spec.kind for spec in found[0][1]] == ["heldout_loss"]


@pytest.mark.parametrize("command", ["evaluate", "sweep", "train"])
def test_changed_reference_file_is_refused(
    command: str, lab: Lab, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = completed(lab), in_folder / "coco.npz"
    usual = EvaluationDefaults(reference=ReferenceSpec(name="coco", path=str(file)))
    (spec,) = decode_evaluations(["fid@1k"], usual)
    lab.run(run).evaluation(spec).write(spec, {"fid@1k": 1.0})
    words = {"evaluate": [run, "fid@1k", "--reference", str(file)]}
    planned = ["tiny", "evaluate=[fid@1k]", f"reference={file}"]
    file.write_bytes(b"one")
    lab.run(run).keep_reference("coco", sha256(file), file)
    file.write_bytes(b"other")
    assert main([command, *words.get(command, planned), "--root", str(lab.root)]) == 2
    assert "that this lab uses under this name" in capsys.readouterr().err
