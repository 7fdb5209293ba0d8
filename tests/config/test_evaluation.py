"""Claims about evaluations and the steps that they measure."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tread_lab.config import RunSpec, SamplerSpec, UserError, decode, signature
from tread_lab.config.evaluation import (
    SOLVERS,
    EvaluationDefaults,
    HeldoutSpec,
    SamplesSpec,
    SimilaritySpec,
    at_steps,
    check_solver,
    decode_evaluations,
    respaced,
)
from tread_lab.config.metrics import ReferenceSpec


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
def test_steps_are_written_as_a_text_a_list_or_a_key(items: list[Any]) -> None:
    specs = decode_evaluations(items)
    assert [(s.metrics, s.count, s.step) for s in specs if isinstance(s, SamplesSpec)] == [
        (("fid",), 10_000, 50_000),
        (("fid",), 10_000, "25%"),
        (("fid",), 10_000, None),
    ]


@pytest.mark.parametrize(
    ("shares", "total", "steps"),
    [
        (["1%", "25%", 300, 400, None], 400, [4, 100, 300, None]),
        (["1%", "25%", "26%", "99%"], 10, [1, 2, 3, None]),
        (["50%", 5, 10, None], 10, [5, None]),
    ],
)
def test_a_share_is_the_nearest_step_and_equal_steps_are_one(
    shares: list[Any], total: int, steps: list[int | None]
) -> None:
    specs = [HeldoutSpec(step=share) for share in shares]
    assert [spec.step for spec in at_steps(specs, total)] == steps
    with pytest.raises(UserError, match=rf"step {total + 1} lies beyond the {total} steps of tra"):
        at_steps([HeldoutSpec(step=total + 1)], total)


RUN = {"model": "DiT-S/2"}


def test_a_process_has_its_own_solvers_and_those_of_every_ode() -> None:
    own = {"edm": "heun euler", "flow": "heun heun_full euler sde", "ddpm": "heun euler ddpm ddim"}
    for process, solver in itertools.product(own, SOLVERS.built_in):
        refusal = pytest.raises(UserError, match=f"for the process {process}, got {solver}")
        with nullcontext() if solver in own[process].split() else refusal:
            check_solver(decode(RunSpec, {**RUN, "process": process}), SamplerSpec(solver=solver))


def test_a_chain_rounds_the_sum_of_its_strides() -> None:
    """As OpenAI's code does; only where a step lies half-way does that decide."""

    def exact(n: int) -> list[int]:
        return torch.linspace(0, 999, n, dtype=torch.float64).round().long().tolist()

    differing = {n for n in range(2, 1001) if respaced(n) != exact(n)}
    assert {21, 27, 35} <= differing and all(n % 2 for n in differing)
    assert not {5, 10, 20, 25, 50, 100, 250, 1000} & differing
    assert respaced(1) == [999]


def test_the_sde_ends_as_sits_unless_told_otherwise_and_no_other_solver_has_a_last_step() -> None:
    assert SamplerSpec(solver="sde").last_step == 0.04
    assert SamplerSpec(solver="sde", last_step=0.1).last_step == 0.1
    assert signature(SamplerSpec(last_step=0.1)) == signature(SamplerSpec())


def names(items: Any, **more: Any) -> list[tuple[Any, ...]]:
    found = decode_evaluations(items, **more)
    assert all(isinstance(spec, SamplesSpec) for spec in found)
    return [(spec.metrics, spec.count, spec.step) for spec in found]  # type: ignore[union-attr]


def test_metrics_of_the_same_images_are_one_evaluation() -> None:
    assert names(["fd@1k", "KID@1K", "fd@1k", "fd@500"]) == [
        (("fd", "kid"), 1000, None),
        (("fd",), 500, None),
    ]
    assert names(["fd@1k at 5, end", "kid@1k at 5"]) == [
        (("fd", "kid"), 1000, 5),
        (("fd",), 1000, None),
    ]
    other = {"samples": {"metrics": ["kid"], "count": 1000, "sampler": {"steps": 9}}}
    assert len(decode_evaluations(["fd@1k", other])) == 2
    loss = ["heldout_loss at 10", 20, {"heldout_loss": {"at": 10}}, {"heldout_loss": {"levels": 2}}]
    steps = (HeldoutSpec(step=10), HeldoutSpec(step=20))  # a number goes on with the steps
    assert decode_evaluations(loss) == (*steps, HeldoutSpec(levels=2))
    assert SamplesSpec(metrics=("fd", "kid", "fd"), count=1000).metrics == ("fd", "kid")


def test_an_evaluation_takes_its_own_reference_before_that_of_all() -> None:
    file = ReferenceSpec(name="coco")
    items = ["fid@1k", "fid[heldout]@1k", "is@1k", {"samples": {"metrics": ["fid"], "count": 500,
                                                                "reference": "other"}}]  # fmt: skip
    found = decode_evaluations(items, EvaluationDefaults(reference=file))
    references = [(s.metrics, s.reference and s.reference.name) for s in found]  # type: ignore[union-attr]
    assert references == [(("fid", "is"), "coco"), (("fid",), None), (("fid",), "other")]
    (score,) = decode_evaluations(["is@1k"], EvaluationDefaults(reference=file))
    assert score.reference is None  # type: ignore[union-attr]
    made = SamplesSpec(metrics=("fd",), count=1000)
    usual = EvaluationDefaults(sampler={"steps": 5}, reference=file)
    assert decode_evaluations([made], usual) == (made,)


def test_a_probe_has_the_images_levels_and_pick_of_its_experiment() -> None:
    planned = ["heldout_loss at 5", {"heldout_loss": {"images": 64, "levels": 2, "pick": "even"}}]
    usual = EvaluationDefaults().with_probes(decode_evaluations(planned[1:]))
    asked = ["heldout_loss", {"heldout_loss": {"images": 8}}, "layer_similarity at 5"]
    assert decode_evaluations(asked, usual) == (
        HeldoutSpec(images=64, levels=2, pick="even"),
        HeldoutSpec(images=8, levels=2, pick="even"),
        SimilaritySpec(step=5),
    )
    first = EvaluationDefaults().with_probes(decode_evaluations(planned))
    assert first.heldout_loss == HeldoutSpec(), "the first one, at whatever step"
