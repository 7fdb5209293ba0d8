"""A setting that treats nothing in a run as long as it is refused, and a share is said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sweep.plans import tiny
from tread_lab.config import RunSpec, UserError, decode, encode
from tread_lab.config.lengths import check_treatments, ema_notices
from tread_lab.config.recipe import EmaSpec


def run(**changes: Any) -> RunSpec:
    tree = encode(tiny(steps=60, routes=["0->1"]))
    train = {**tree["train"], **changes.pop("train", {})}
    return decode(RunSpec, {**tree, "train": train, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train": {"ema": 0.9999}}, "^train.ema: after 60 steps the EMA still holds 99% of the"),
        ({"train": {"ema": {"halflife": 2.0}}}, "^train.ema: after 60 steps .* holds 71%"),
        ({"train": {"warmup": 60}}, r"^train.warmup: must be below train.steps \(60\), got 60"),
        ({"routes_from": 60}, "^routes_from: must be below the step 60 at which the routes end"),
        ({"routes_from": 9, "routes_until": 9}, "^routes_from: must be below the step 9 at which"),
    ],
)
def test_a_setting_without_effect_is_refused(changes: dict[str, Any], said: str) -> None:
    check_treatments([run()])
    with pytest.raises(UserError, match=said):
        check_treatments([run(), run(**changes)])
    child = decode(RunSpec, {**encode(run()), "init_from": {"run": encode(run(**changes))}})
    with pytest.raises(UserError, match=said):
        check_treatments([child])


def test_a_dense_phase_and_weights_alone_are_meant() -> None:
    check_treatments([run(routes_until=0), run(train={"steps": 0, "ema": 0.9999})])
    check_treatments([run(train={"ema": 0})])


@pytest.mark.parametrize("ema", [EmaSpec(decay=0.97), EmaSpec(halflife=0.3)])
def test_initial_share_is_what_updates_leave(ema: EmaSpec) -> None:
    average = 1.0
    for _ in range(50):
        average *= ema.at(50)
    assert ema.initial(50) == pytest.approx(average)


def test_a_share_of_the_initial_weights_is_said() -> None:
    assert not list(ema_notices([run(train={"ema": 0.95})]))
    (line,) = ema_notices([run(), run(train={"ema": 0.98})])
    assert "30% of the initial weights" in line


def test_a_decay_beside_a_half_life_is_refused() -> None:
    with pytest.raises(UserError, match=r"train.ema.decay: has no effect beside a half-life"):
        run(train={"ema": {"decay": 0.5, "halflife": 0.1}})
