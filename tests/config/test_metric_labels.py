"""Claims about labels of evaluations and names of metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tread_lab.config import (
    EvaluationSpec,
    GuidanceSpec,
    HeldoutSpec,
    SamplerSpec,
    SamplesSpec,
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


@pytest.mark.parametrize(
    ("planned", "names"),
    [
        ([compared(None), guided(2.0), PROBE, guided(1.0), FEW], USUAL),
        ([FEW, MANY], {("heldout/loss", FEW): "heldout/loss", ("heldout/loss", MANY): PROBE_OF_64}),
    ],
)
def test_metric_name_says_what_is_unusual(
    planned: list[EvaluationSpec], names: dict[tuple[str, EvaluationSpec], str]
) -> None:
    known = MetricNames(BASE.with_probes(planned))
    for (metric, spec), name in names.items():
        assert known.name(metric, signature(spec), encode(spec)) == name


SPARSE = {"weight": 1.5, **SG}
OTHER: tuple[dict[str, Any], ...] = (
    *({"reference": name} for name in (None, "coco256")),
    *({"sampler": {"solver": solver}} for solver in ("euler", "heun_full", "sde", "ddpm")),
    *({"sampler": {"steps": steps}} for steps in (21, 250)),
    *({"sampler": {"sigma_min": sigma}} for sigma in (0.003, 0.0020000001)),
    *({"sampler": {"rho": rho}} for rho in (1e6, 1000001.0)),
    *({"sampler": own} for own in ({"precision": "bf16"}, {"labels": "balanced"}, {"seed": 1})),
    *({"sampler": {"guidance": weight}} for weight in (1.5, 1.5000001, 0.1 + 0.2, 0.3)),
    *(
        {"sampler": {"guidance": {**SPARSE, **own}}}
        for own in (
            *({"interval": ends} for ends in (None, [0.1, 1], [0.1, 1.0000001])),
            {"channels": "first3"},
            *({"routes": routes} for routes in (["2->8"], ["2->8 by rows"], ["0->1", "2->8"])),
            *({"strong": {"rate": rate}} for rate in (0, 0.5000001, "0.6->0", "0.6->0.1")),
            *({"weak": {"rate": 0.9, **weak}} for weak in ({"label": "none"}, {"step": 5})),
            {"weak": {"path": "dropped"}},
            {"weak": {"path": "dropped", "label": "class"}},
        )
    ),
)


def test_metric_names_tell_evaluations_apart() -> None:
    base = {"metrics": ["fid"], "count": 1000, "reference": "imagenet256"}
    specs = [decode(SamplesSpec, {**base, **own}) for own in ({}, *OTHER)]
    names = MetricNames(EvaluationDefaults(reference=ReferenceSpec(name="imagenet256")))
    found = {}
    for spec in specs:
        metric = sample_metric("fid", "inception", 1000, heldout=spec.reference is None)
        name = names.name(metric, signature(spec), encode(spec))
        assert name == names.name(metric, "", encode(replace(spec, step=250)))
        found[name] = signature(spec)
    assert len(found) == len({*found.values()}) == len(specs)
