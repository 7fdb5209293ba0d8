"""Which solvers a process has, and what a sampler forgets because it has no effect."""

from __future__ import annotations

import pytest

from tread_lab.specs import RunSpec, SamplerSpec, UserError, decode, signature
from tread_lab.specs.evaluation import check_solver

RUN = {"model": "DiT-S/2"}


@pytest.mark.parametrize(
    ("process", "solvers"),
    [
        ("edm", ["heun", "euler"]),
        ("flow", ["heun", "euler", "sde"]),
        ("ddpm", ["heun", "euler", "ddpm", "ddim"]),
    ],
)
def test_a_process_has_its_own_solvers_and_those_of_every_ode(
    process: str, solvers: list[str]
) -> None:
    run = decode(RunSpec, {**RUN, "process": process})
    for solver in ("heun", "euler", "ddpm", "ddim", "sde"):
        if solver in solvers:
            check_solver(run, SamplerSpec(solver=solver))
        else:
            with pytest.raises(UserError, match=f"and the process is {process}; choose one of"):
                check_solver(run, SamplerSpec(solver=solver))


def test_ddpm_has_a_thousand_levels() -> None:
    run = decode(RunSpec, {**RUN, "process": "ddpm"})
    check_solver(run, SamplerSpec(solver="ddpm", steps=1000))
    with pytest.raises(UserError, match="ddpm has 1,000 levels, got 1,001"):
        check_solver(run, SamplerSpec(solver="ddpm", steps=1001))


def test_the_sde_ends_as_sits_unless_told_otherwise_and_no_other_solver_has_a_last_step() -> None:
    assert SamplerSpec(solver="sde").last_step == 0.04
    assert SamplerSpec(solver="sde", last_step=0.1).last_step == 0.1
    assert signature(SamplerSpec(last_step=0.1)) == signature(SamplerSpec())
    with pytest.raises(UserError, match=r"last_step: 1.5 is outside \(0, 1\)"):
        SamplerSpec(solver="sde", last_step=1.5)
