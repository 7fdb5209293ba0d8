"""Claims about labels of evaluations and names of metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tread_lab.config import (
    EvaluationSpec,
    GuidanceSpec,
    HeldoutSpec,
    SamplerSpec,
    SamplesSpec,
    UserError,
    decode,
    encode,
    signature,
)
from tread_lab.config.evaluation import EvaluationDefaults
from tread_lab.config.labels import MetricNames
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.records.metric_names import sample_metric


def guided(weight: float, steps: int = 20, **more: Any) -> SamplesSpec:
    guidance = decode(GuidanceSpec, {"weight": weight, **more})
    sampler = SamplerSpec(steps=steps, guidance=guidance)
    return SamplesSpec(metrics=("fd",), count=1000, sampler=sampler)


def compared(reference: str | None, metric: str = "fid", path: str = "/x.npz") -> SamplesSpec:
    named = None if reference is None else ReferenceSpec(name=reference, path=path)
    sampler = SamplerSpec(steps=20)
    return SamplesSpec(metrics=(metric,), count=1000, sampler=sampler, reference=named)


PROBE, FEW, MANY = (HeldoutSpec(images=images) for images in (512, 8, 64))
PROBE_OF_64 = "heldout/loss images=64"
BASE = EvaluationDefaults(
    sampler={"steps": 20, "guidance": 3}, reference=ReferenceSpec(name="imagenet256")
)
SG = {"strong": {"rate": 0.5}, "weak": {"rate": 0.9}}
USUAL = {
    ("fd[x]@1k", guided(1.0)): "fd[x]@1k",
    ("fd[x]@1k", guided(1.0, strong=SG["strong"])): "fd[x]@1k routed(0.5)",
    ("fd[x]@1k", guided(2.0, weak={"step": 5})): "fd[x]@1k w=2 AG(5)",
    ("fd[x]@1k", guided(2.0, interval=[0.3, 5])): "fd[x]@1k w=2 interval=[0.3,5.0]",
    ("fd[x]@1k", guided(2.0, channels="first3")): "fd[x]@1k w=2 channels=first3",
    ("fd[x]@1k", guided(1.5, **SG, routes=["2->8"])): "fd[x]@1k w=1.5 SG(0.5/0.9) routes=2->8",
    ("heldout/loss", PROBE): "heldout/loss",
    ("heldout/loss", FEW): "heldout/loss images=8",
    ("fd[x]@1k", guided(2.0, 50)): "fd[x]@1k steps=50 w=2",
    ("cost/sample_flops", guided(2.0)): "cost/sample_flops w=2",
    ("fid[heldout]@1k", compared(None)): "fid[heldout]@1k",
    ("fid@1k", compared("imagenet256")): "fid@1k",
    ("fid@1k", compared("coco256")): "fid@1k reference=coco256",
    ("is@1k", compared(None, "is")): "is@1k",
    ("is@1k", compared("coco", "is")): "is@1k reference=coco",
}


def defaults(planned: Sequence[EvaluationSpec]) -> EvaluationDefaults:
    return BASE.with_probes(planned)


@pytest.mark.parametrize(
    ("planned", "names"),
    [
        ([], USUAL),
        ([guided(1.0), compared("coco256")], USUAL),
        ([compared(None), guided(2.0), PROBE, guided(1.0), FEW], USUAL),
        (  # the first probe is usual
            [FEW, MANY],
            {("heldout/loss", FEW): "heldout/loss", ("heldout/loss", MANY): PROBE_OF_64},
        ),
    ],
)
def test_a_name_says_what_is_not_usual_whatever_else_is_planned(
    planned: list[EvaluationSpec], names: dict[tuple[str, EvaluationSpec], str]
) -> None:
    known = MetricNames(defaults(planned))
    for (metric, spec), name in names.items():
        assert known.name(metric, signature(spec), encode(spec)) == name


BRANCHES = {
    "label": (None, "class", "none"),
    "rate": (0, 0.5, 0.5000001, "0.6->0", "0.6->0.1"),
    "step": (None, 5, 6),
    "path": ("full", "dropped"),
}
GUIDANCES = {
    "weight": (1, 1.5, 1.5000001, 2, 0.1 + 0.2, 0.3),
    "interval": (None, [0.1, 1], [0.1, 1.0000001]),
    "channels": ("all", "first3"),
    "routes": ([], ["2->8"], ["2->8 by rows"], ["2->B-4"], ["0->1", "2->8"]),
    **{f"{side}.{name}": of for side in ("strong", "weak") for name, of in BRANCHES.items()},
}
SAMPLERS = {
    "solver": ("heun", "euler", "heun_full", "sde", "ddpm"),
    "steps": (20, 21, 250),
    "sigma_min": (0.002, 0.0020000001),
    "rho": (7.0, 1e6, 1000001.0),
    "precision": ("fp32", "bf16"),
    "labels": ("uniform", "balanced"),
    "seed": (100_000, 1),
    **{f"guidance.{name}": of for name, of in GUIDANCES.items()},
}
GUIDED = "sampler.guidance.weight"
EVALUATIONS = {
    "reference": (None, "imagenet256", "coco256"),
    **{f"sampler.{name}": of for name, of in SAMPLERS.items()},
}


@settings(max_examples=10, derandomize=True, deadline=None)
@example(fields={name: of[0] for name, of in EVALUATIONS.items()} | {GUIDED: 2})
@given(fields=st.fixed_dictionaries({k: st.sampled_from(v) for k, v in EVALUATIONS.items()}))
def test_evaluations_share_a_name_only_if_they_are_one(fields: dict[str, Any]) -> None:
    """An evaluation beside all that differ from it in one field, whatever else is planned."""
    specs = [
        spec
        for name, values in EVALUATIONS.items()
        for value in values
        for spec in _evaluation(fields | {name: value})
    ]
    base = EvaluationDefaults(sampler={"steps": 21}, reference=ReferenceSpec(name="imagenet256"))
    signatures: dict[str, set[str]] = {}
    for planned in ([], [HeldoutSpec(), *specs]):
        names = MetricNames(base.with_probes(planned))
        for spec in specs:
            metric = sample_metric("fid", "inception", 1000, heldout=spec.reference is None)
            name = names.name(metric, signature(spec), encode(spec))
            assert name == names.name(metric, "", encode(replace(spec, step=250)))
            signatures.setdefault(name, set()).add(signature(spec))
    assert {name: ids for name, ids in signatures.items() if len(ids) > 1} == {}
    assert len(signatures) == len({signature(spec) for spec in specs})


def _evaluation(fields: dict[str, Any]) -> list[SamplesSpec]:
    """The evaluation of such fields, if it is one: a path that is dropped has no rate."""
    tree: dict[str, Any] = {"metrics": ["fid"], "count": 1000}
    for dotted, value in fields.items():
        *parents, leaf = dotted.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    with contextlib.suppress(UserError):
        return [decode(SamplesSpec, tree)]
    return []
