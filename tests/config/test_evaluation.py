"""Claims about evaluations, the steps that they measure, and the features of their metrics."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import pytest

from tread_lab.config import RunSpec, SamplerSpec, UserError, decode, signature
from tread_lab.config.evaluation import (
    SOLVERS,
    EvaluationDefaults,
    HeldoutSpec,
    SamplesSpec,
    at_steps,
    check_solver,
    decode_evaluations,
)
from tread_lab.config.metrics import (
    DINOV2,
    INCEPTION,
    METRICS,
    ReferenceSpec,
    extractor_for,
)
from tread_lab.records.metric_names import sample_metric


def names(items: Any, **more: Any) -> list[tuple[Any, ...]]:
    found = decode_evaluations(items, **more)
    return [(spec.metrics, spec.count, spec.step) for spec in found]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "items",
    [
        ["fid@10k at 50000, 25%, end"],
        ["fid@10k at 50k 25% end"],
        ["fid@10k at 50000", "25%", "end"],  # a comma within brackets makes items
        ["fid@10k", "at", 50000, "25%", "end"],  # and a shell makes words
        [{"samples": {"metrics": ["fid"], "count": 10_000, "at": [50_000, "25%", "end"]}}],
    ],
)
def test_spellings_of_steps_agree(items: list[Any]) -> None:
    assert names(items) == [(("fid",), 10_000, step) for step in (50_000, "25%", None)]


@pytest.mark.parametrize(
    ("shares", "total", "steps"),
    [
        (["1%", "25%", 300, 400, None], 400, [4, 100, 300, None]),
        (["1%", "25%", "26%", "99%"], 10, [1, 2, 3, None]),
        (["50%", 5, 10, None], 10, [5, None]),
    ],
)
def test_share_is_the_nearest_step(shares: list[Any], total: int, steps: list[Any]) -> None:
    assert [s.step for s in at_steps([HeldoutSpec(step=x) for x in shares], total)] == steps
    with pytest.raises(UserError, match=rf"step must be at most {total}, .*, got {total + 1}"):
        at_steps([HeldoutSpec(step=total + 1)], total)


def test_solvers_belong_to_their_process() -> None:
    own = {"edm": "heun euler", "flow": "heun heun_full euler sde", "ddpm": "heun euler ddpm ddim"}
    for process, solver in itertools.product(own, SOLVERS.built_in):
        refusal = pytest.raises(UserError, match=f"for the process {process}, got {solver}")
        run = decode(RunSpec, {"model": "DiT-S/2", "process": process})
        with nullcontext() if solver in own[process].split() else refusal:
            check_solver(run, SamplerSpec(solver=solver))
    assert SamplerSpec(solver="sde").last_step == 0.04
    assert SamplerSpec(solver="sde", last_step=0.1).last_step == 0.1
    assert signature(SamplerSpec(last_step=0.1)) == signature(SamplerSpec())


def test_metrics_of_equal_images_share_an_evaluation() -> None:
    merged = [(("fd", "kid"), 1000, None), (("fd",), 500, None)]
    assert names(["fd@1k", "KID@1K", "fd@1k", "fd@500"]) == merged
    at_5 = [(("fd", "kid"), 1000, 5), (("fd",), 1000, None)]
    assert names(["fd@1k at 5, end", "kid@1k at 5"]) == at_5
    other = {"samples": {"metrics": ["kid"], "count": 1000, "sampler": {"steps": 9}}}
    assert len(decode_evaluations(["fd@1k", other])) == 2
    loss = ["heldout_loss at 10", 20, {"heldout_loss": {"at": 10}}, {"heldout_loss": {"levels": 2}}]
    steps = (HeldoutSpec(step=10), HeldoutSpec(step=20))  # a number goes on with the steps
    assert decode_evaluations(loss) == (*steps, HeldoutSpec(levels=2))


def test_own_settings_precede_the_experiments() -> None:
    usual = EvaluationDefaults(sampler={"steps": 5}, reference=ReferenceSpec(name="coco"))
    other = {"samples": {"metrics": ["fid"], "count": 500, "reference": "other"}}
    found = decode_evaluations(["fid@1k", "fid[heldout]@1k", "is@1k", other], usual)
    references = [(s.metrics, s.reference and s.reference.name) for s in found]  # type: ignore[union-attr]
    assert references == [(("fid", "is"), "coco"), (("fid",), None), (("fid",), "other")]
    assert {s.sampler.steps for s in found} == {5}  # type: ignore[union-attr]
    (score,) = decode_evaluations(["is@1k"], usual)
    assert score.reference is None, "it compares with no real image"  # type: ignore[union-attr]


@pytest.mark.parametrize("source", ["fashion16", "latents"])
def test_fid_has_inception_features_alone(source: str) -> None:
    assert extractor_for("fd_dinov2", source) == DINOV2
    for metric in set(METRICS) - {"fd", "fd_dinov2"}:
        extractor = extractor_for(metric, source)
        name = sample_metric(metric, extractor, 1000, heldout=False)
        assert (extractor == INCEPTION) == (name == f"{metric}@1k")


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("imagenet256", "imagenet256", None),
        ("/x/VIRTUAL_imagenet256_labeled.npz", "imagenet256", "/x/VIRTUAL_imagenet256_labeled.npz"),
        ("VIRTUAL_imagenet512.npz", "imagenet512", "VIRTUAL_imagenet512.npz"),
        ("x/coco.npz", "coco", "x/coco.npz"),
        ("x/coco", "coco", "x/coco"),
    ],
)
def test_reference_is_named_for_its_file(text: str, name: str, path: str | None) -> None:
    assert decode(ReferenceSpec, text) == ReferenceSpec(name=name, path=path)
    assert SamplesSpec(metrics=("fd", "kid", "fd"), count=1000).metrics == ("fd", "kid")
