"""Guidance that never acts is refused, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.train.runs import small_run
from tread_lab.config import RunSpec, SamplerSpec, UserError, decode
from tread_lab.evaluate.effect import check_effect

FLOW, DDPM = small_run(process="flow"), small_run(process="ddpm")
EDM, ROWS = small_run(), small_run(routes=["1->1 by rows"])
USUAL = {"solver": "heun", "steps": 6}


def cfg(**more: Any) -> dict[str, Any]:
    return {"guidance": {"weight": 2, **more}}


def rates(strong: Any, weak: Any, **more: Any) -> dict[str, Any]:
    return cfg(strong={"rate": strong}, weak={"rate": weak}, **more)


REFUSED: list[tuple[RunSpec, dict[str, Any], str]] = [
    (FLOW, cfg(interval=[2, 5]), r"interval: must hold a level .* 6 levels from 1 to 0\.1667"),
    (FLOW, cfg(interval=[0.3, 0.3]), "the nearest are .*0.3333, 0.1667"),
    (FLOW, cfg(interval=[0.31, 0.32]), "interval: must hold a level"),
    (FLOW, {**cfg(interval=[0.01, 0.03]), "solver": "sde"}, r"levels from 1 to 0\.04"),
    (EDM, cfg(interval=[90, 99]), "interval: must hold a level"),
    (EDM, rates(0, 0.05), r"a rate of 0\.05 routes none of 16 tokens"),
    (EDM, cfg(weak={"rate": 0.05, "label": "none"}), "routes none of 16 tokens"),
    (EDM, {"guidance": {"strong": {"rate": 0.05}}}, "routes none of 16 tokens"),
    (ROWS, rates(0, 0.2), "routes none of 16 tokens"),
    (EDM, rates("0->0.05", 0.5), "a rate of 0->0.05 routes none of 16 tokens"),
    (EDM, rates(0, "0.6->0", interval=[0, 0.003]), "routes none of 16 tokens"),
]  # fmt: skip
ACCEPTED: list[tuple[RunSpec, dict[str, Any]]] = [
    (FLOW, cfg(interval=[0.3, 0.4])),
    (FLOW, cfg(interval=[1, 1])),
    (EDM, cfg(interval=[0.3, 5])),
    (EDM, rates(0, 0.07)),
    (EDM, rates("0->0.6", "0.6->0")),
    (EDM, rates("0.6->0", "0.6->0.3", interval=[0, 0.03])),
    (EDM, rates(0.5, 0.57)),
]


def sampler(tree: dict[str, Any]) -> SamplerSpec:
    return decode(SamplerSpec, {**USUAL, **tree})


@pytest.mark.parametrize(("run", "tree", "message"), REFUSED)
def test_a_setting_without_effect_is_refused(
    run: RunSpec, tree: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        check_effect(run, sampler(tree))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("run", "tree"), ACCEPTED)
def test_a_setting_with_an_effect_is_accepted(run: RunSpec, tree: dict[str, Any]) -> None:
    check_effect(run, sampler(tree))
