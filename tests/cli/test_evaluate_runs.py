"""The evaluate command measures as it is told, else as the experiment says."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pretender import ended_run
from tests.sweep.plans import DEEP, plan_of, tiny
from tread_lab.cli import evaluate_runs as evaluate
from tread_lab.cli.evaluate_runs import named_evaluations, to_measure
from tread_lab.cli.main import main
from tread_lab.config import UserError, decode, encode
from tread_lab.config.errors import Unavailable
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
from tread_lab.records.run_state import ProcessLost, RunState
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
        (["fd@1k", "steps=9"], "steps=9: must be of the sampler. Try sampler.steps=40"),
        (["sampler.steps=9"], "name what to measure with this sampler: fd@1k sampler.steps=40"),
        (["fd@1k", "sampler.steps=[9"], r"^'sampler.steps=\[9' line 1: must be valid YAML"),
        (["{heldout_loss: {image: 9}}"], "unknown key 'image', did you mean 'images'"),
        (["{heldout_loss: {images: 9"], "images: 9' line 1: must be valid YAML"),
    ],
)
def test_wrong_field_of_evaluation_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        named_evaluations(words, EvaluationDefaults(), None)
    assert "\n" not in str(refusal.value)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is measured, with which device and cache; nothing is."""
    calls: list[Any] = []

    def one(
        folder: Any, spec: Any, device: torch.device, *, cache: Path, ranks: Any
    ) -> Generator[tuple[int, int], None, dict[str, float]]:
        calls.append((folder.name, spec.kind, spec.step, device.type, cache))
        yield 1, 1
        return {"heldout/loss": 0.25}

    monkeypatch.setattr(evaluate, "measuring", one)
    monkeypatch.setattr(evaluate, "check_measurable", lambda asked: None)
    monkeypatch.setattr(evaluate, "open_evaluations", lambda measurements: [])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: calls.append(n))
    return calls


def evaluate_with(name: str, *evaluations: str, **options: Any) -> int:
    how = {"gpus": None, "processes": None, "as_json": False, "device": "cpu", "threads": 3}
    return evaluate.evaluate_runs(name, evaluations, None, **{**how, **options})


def completed(lab: Lab) -> str:
    return ended_run(lab, tiny(steps=20), step=20).name


def test_run_is_measured_as_named(
    lab: Lab,
    measured: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = completed(lab)
    lab.run("another").create(tiny())
    how: dict[str, Any] = {"root": str(lab.root)}
    named = ["heldout_loss", "heldout_loss at 50%"]
    assert evaluate_with(run[:6], *named, **how) == 0
    cache = lab.root / "cache"
    assert measured == [
        3, (run, "heldout_loss", None, "cpu", cache), (run, "heldout_loss", 10, "cpu", cache)
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        f"{run} heldout_loss: heldout/loss 0.2500", f"{run} heldout_loss at 10: heldout/loss 0.2500"
    ]  # fmt: skip
    assert evaluate_with(run[:6], *named, **how, as_json=True) == 0
    row = {"run": run, "evaluation": "heldout_loss"}
    assert json.loads(capsys.readouterr().out) == [
        {**row, "heldout/loss": 0.25}, {**row, "step": 10, "heldout/loss": 0.25}
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"RUN heldout_loss fd@1k`$"):
        evaluate_with(run[:6], **how)


def test_one_mistake_is_raised_at_the_end(
    lab: Lab, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, one = completed(lab), evaluate.measuring

    def failing(folder: Any, spec: Any, *what: Any, **how: Any) -> Any:
        if spec.step == 15:
            raise ProcessLost("process 1 has ended")
        if spec.step == 10:
            raise UserError("no such step")
        return one(folder, spec, *what, **how)

    monkeypatch.setattr(evaluate, "measuring", failing)
    with pytest.raises(UserError, match=r"^no such step"):
        evaluate_with(run, "heldout_loss at 10", "heldout_loss", root=str(lab.root), as_json=True)
    assert [call[2] for call in measured[1:]] == [None]
    with pytest.raises(Unavailable, match=r"^process 1 has ended; the same command goes on$"):
        evaluate_with(run, "heldout_loss at 15", "heldout_loss", root=str(lab.root))


def test_completed_runs_of_sweep_are_measured(lab: Lab) -> None:
    plan = planned()
    store_plan(lab.sweep("budgeted"), plan)
    with pytest.raises(UserError, match=r"^budgeted: no run has finished training$"):
        to_measure(lab, "budgeted", [], None)
    for task, state in zip(plan.tasks, (RunState.COMPLETED, RunState.FAILED, RunState.COMPLETED)):
        ended_run(lab, task.spec, state, step=1)
    found, _ = to_measure(lab, "budgeted", [], None)
    assert [folder.name for folder, _ in found] == [plan.tasks[0].run, plan.tasks[2].run]
    assert [spec.kind for spec in found[0][1]] == ["heldout_loss"]


def test_named_steps_are_those_of_the_run(lab: Lab) -> None:
    run = completed(lab)
    ((_, specs),), _ = to_measure(lab, run, ["heldout_loss at 5, 50%, end"], None)
    assert {spec.step for spec in specs} == {5, 10, None}
    with pytest.raises(UserError, match="21"):
        to_measure(lab, run, ["heldout_loss at 21"], None)


def test_exported_weights_need_no_lab(
    in_folder: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"absent is no such folder"):
        evaluate_with(completed(lab), "fid@1k", root="absent")
    monkeypatch.setattr(evaluate.RunFolder, "exported", True)
    ((folder, (spec,)),), _ = to_measure(lab, ".", ["fid@1k"], "imagenet512")
    assert folder.path.resolve() == in_folder
    assert isinstance(spec, SamplesSpec) and spec.reference is not None
    assert spec.reference.name == "imagenet512"


def test_impossible_sampler_is_refused_first(
    lab: Lab,
) -> None:
    with pytest.raises(UserError, match=r"sampler\.solver"):
        evaluate_with(completed(lab), "fd@1k", "sampler.solver=ddpm", root=str(lab.root))


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
    assert "which evaluations of this lab compare with under" in capsys.readouterr().err


def test_exported_weights_are_measured_at_their_step(lab: Lab) -> None:
    folder = lab.run(completed(lab))
    (folder.path / "model.safetensors").touch()
    ((_, (probe,)),), usual = to_measure(lab, str(folder.path), ["heldout_loss"], None)
    assert probe == usual.heldout_loss
    for named in ([], ["heldout_loss at 5"]):
        with pytest.raises(UserError, match="name what to measure"):
            to_measure(lab, str(folder.path), named, None)
