"""Which solvers a process has, and what a sampler forgets because it has no effect."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tread_lab.specs import RunSpec, SamplerSpec, UserError, decode, encode, signature
from tread_lab.specs.evaluation import (
    HeldoutSpec,
    SamplesSpec,
    check_solver,
    decode_evaluations,
    respaced,
)
from tread_lab.specs.references import ReferenceSpec

RUN = {"model": "DiT-S/2"}


@pytest.mark.parametrize(
    ("process", "solvers"),
    [
        ("edm", ["heun", "euler"]),
        ("flow", ["heun", "heun_full", "euler", "sde"]),
        ("ddpm", ["heun", "euler", "ddpm", "ddim"]),
    ],
)
def test_a_process_has_its_own_solvers_and_those_of_every_ode(
    process: str, solvers: list[str]
) -> None:
    run = decode(RunSpec, {**RUN, "process": process})
    for solver in ("heun", "heun_full", "euler", "ddpm", "ddim", "sde"):
        if solver in solvers:
            check_solver(run, SamplerSpec(solver=solver))
        else:
            with pytest.raises(UserError, match=f"and the process is {process}; choose one of"):
                check_solver(run, SamplerSpec(solver=solver))


def test_steps_that_a_chain_may_round_otherwise_than_before_have_another_signature() -> None:
    """None of the published numbers of steps is among them."""

    def before(n: int) -> list[int]:
        return torch.linspace(0, 999, n, dtype=torch.float64).round().long().tolist()

    chains = {n: SamplerSpec(solver="ddim", steps=n) for n in range(1, 1001)}
    marked = {n for n, sampler in chains.items() if sampler.respacing == "strided"}
    assert {21, 27, 35} <= {n for n in range(2, 1001) if respaced(n) != before(n)} <= marked
    assert not {1, 5, 10, 20, 25, 50, 100, 250, 1000} & marked
    assert "respacing" in encode(chains[21]) and "respacing" not in encode(chains[250])
    assert SamplerSpec(solver="heun", steps=21).respacing is None


def test_ddpm_has_a_thousand_levels() -> None:
    run = decode(RunSpec, {**RUN, "process": "ddpm"})
    check_solver(run, SamplerSpec(solver="ddpm", steps=1000))
    with pytest.raises(UserError, match="ddpm has 1,000 levels, got 1,001"):
        check_solver(run, SamplerSpec(solver="ddpm", steps=1001))
    with pytest.raises(UserError, match="steps: at most 10,000, got 100,000,000"):
        SamplerSpec(steps=10**8)


def test_the_sde_ends_as_sits_unless_told_otherwise_and_no_other_solver_has_a_last_step() -> None:
    assert SamplerSpec(solver="sde").last_step == 0.04
    assert SamplerSpec(solver="sde", last_step=0.1).last_step == 0.1
    assert signature(SamplerSpec(last_step=0.1)) == signature(SamplerSpec())
    with pytest.raises(UserError, match=r"last_step: 1.5 is outside \(0, 1\)"):
        SamplerSpec(solver="sde", last_step=1.5)


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
    loss = ["heldout_loss", {"heldout_loss": {"levels": 8}}, {"heldout_loss": {"levels": 2}}]
    assert decode_evaluations(loss) == (HeldoutSpec(), HeldoutSpec(levels=2))


def test_an_evaluation_takes_its_own_reference_before_that_of_all() -> None:
    file = ReferenceSpec(name="coco")
    items = ["fid@1k", "fid[heldout]@1k", "is@1k", {"samples": {"metrics": ["fid"], "count": 500,
                                                                "reference": "other"}}]  # fmt: skip
    found = decode_evaluations(items, reference=file)
    references = [(s.metrics, s.reference and s.reference.name) for s in found]  # type: ignore[union-attr]
    assert references == [(("fid", "is"), "coco"), (("fid",), None), (("fid",), "other")]
    (score,) = decode_evaluations(["is@1k"], reference=file)
    assert score.reference is None  # type: ignore[union-attr]


def test_the_experiments_sampler_is_that_of_every_evaluation_without_its_own() -> None:
    own = {"samples": {"metrics": ["fd"], "count": 500, "sampler": {"steps": 9}}}
    found = decode_evaluations(["fd@1k", own], {"steps": 5, "rho": 6.0})
    samplers = [(spec.sampler.steps, spec.sampler.rho) for spec in found]  # type: ignore[union-attr]
    assert samplers == [(5, 6.0), (9, 6.0)]


def test_cells_of_the_sampler_multiply_samples_alone() -> None:
    cells = [{"guidance.weight": 1.0}, {"guidance.weight": 2.0, "steps": 7}]
    found = decode_evaluations(["heldout_loss", "fd@1k"], {"guidance": 3.0}, cells=cells)
    assert found[0] == HeldoutSpec() and len(found) == 3
    weights = [(s.sampler.guidance.weight, s.sampler.steps) for s in found[1:]]  # type: ignore[union-attr]
    assert weights == [(1.0, 40), (2.0, 7)]
    (given,) = decode_evaluations([found[2]], cells=[{"steps": 11}])
    assert (given.sampler.steps, given.sampler.guidance.weight) == (11, 2.0)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("fd@1k", r"^evaluate: expected a list such as \[heldout_loss, fd@1k\], got 'fd@1k'"),
        ([5], r"^evaluate\[0\]: expected a name or \{name: options\}, got 5"),
        ([{"a": {}, "b": {}}], r"evaluate\[0\]: expected a name or"),
        (["heldoutloss"], r"evaluate\[0\]: unknown evaluation 'heldoutloss', did you mean"),
        (
            [{"samples": {"sampler": 5}}],
            r"samples.sampler: expected a mapping, got 5",
        ),
        ([{"heldout_loss": {"at": 5, "step": 5}}], "`at` and `step` say the same; leave one"),
        (["fd@1k at x"], r"evaluate\[0\].samples: 'x' is no step"),
        (["fid@0"], "count"),
        (["fd@1k at "], "no step"),
        (["heldout_loss at "], "no step"),
    ],
)
def test_a_mistake_in_an_evaluation_is_said_with_its_place(items: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        decode_evaluations(items)


def test_only_the_sde_has_a_last_step() -> None:
    assert [SamplerSpec(solver=s).last_step for s in ("heun", "ddim", "ddpm", "sde")] == [
        None, None, None, 0.04
    ]  # fmt: skip


def test_an_evaluation_that_is_made_stays_as_it_is_without_cells() -> None:
    made = SamplesSpec(metrics=("fd",), count=1000)
    assert decode_evaluations([made], {"steps": 5}) == (made,)
    assert decode_evaluations([made, HeldoutSpec()], reference=ReferenceSpec(name="coco")) == (
        made,
        HeldoutSpec(),
    )


def test_cells_do_not_change_what_they_were_given() -> None:
    sampler = {"guidance": {"weight": 3.0}}
    cells = [{"guidance.weight": 1.0}, {"guidance.channels": "first3"}]
    found = decode_evaluations(["fd@1k"], sampler, cells=cells)
    assert [(s.sampler.guidance.weight, s.sampler.guidance.channels) for s in found] == [  # type: ignore[union-attr]
        (1.0, "all"), (3.0, "first3")
    ]  # fmt: skip
    assert sampler == {"guidance": {"weight": 3.0}}
