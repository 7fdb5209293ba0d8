"""Claims about trials and their baselines, matched in cost."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import RunSpec, UserError, decode, signature
from tread_lab.config.evaluation import at_steps, decode_evaluations
from tread_lab.config.labels import cell_label
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.sweep.expand import Expansion, Price, expand, matched_steps

TRAIN = {"steps": 100, "schedule": "sqrt_decay", "warmup": 0.1, "ema": {"halflife": 0.05}}
RUN = {"model": {"depth": 12, "width": 32, "heads": 2}, "train": TRAIN}
SHARE = " that is a share of all steps"
CONSTANT = {"train": {"schedule": "constant", "warmup": 4, "ema": 0.97}}
FALLING = {"routes": [], "train.schedule": "sqrt_decay"}


def price(spec: RunSpec) -> float:
    """A routed step costs two thirds of a dense one."""
    return sum(len(steps) * (2 if routes else 3) for steps, routes in spec.phases)


def expansion(price: Price = price, **sweep: Any) -> Expansion:
    tree = {"experiment": "tiny", "match": "train_flops", "axes": {"route": ["2->8"]}, **sweep}
    tree.setdefault("evaluate", ["heldout_loss at 50%, end"])
    return expand(decode(SweepSpec, tree), Experiment(name="tiny", run=RUN), price=price)


def lengths(found: Expansion) -> list[tuple[str, int]]:
    return [(trial.role, trial.spec.train.steps) for trial in found.trials]


def test_trial_spends_what_its_baseline_spends() -> None:
    found = expansion(seeds=[0, 1])
    assert lengths(found) == [("baseline", 100)] * 2 + [("trial", 150)] * 2
    assert [trial.spec.train.warmup for trial in found.trials] == [10, 10, 15, 15]
    same = expansion(match=None, baseline=None, fixed={"train.steps": 150})
    assert same.trials[0].run == found.trials[2].run, "equal specs are one run"


def test_controls_spend_what_their_baseline_spends() -> None:
    controls = [{"train.batch": "=train.batch // 2"}]
    found = expansion(lambda run: price(run) * run.train.batch, controls=controls, seeds=[0, 1])
    roles = [(t.role, t.spec.train.steps, t.spec.train.batch) for t in found.trials]
    assert roles[:4] == [("baseline", 100, 256)] * 2 + [("control", 200, 128)] * 2
    baseline, _, control, *_ = found.trials
    assert control.cell == {"train.batch": 128} and control.baseline == baseline.run
    assert not control.spec.routes and cell_label(control) == "control batch=128"


def test_routed_phase_is_priced_at_its_length() -> None:
    (_, trial) = expansion(fixed={"routes_until": 0.5}).trials
    assert (trial.spec.train.steps, trial.spec.routes_until) == (120, 60)
    (_, trial) = expansion(fixed={"routes_until": 30}).trials
    assert trial.spec.train.steps == 110, "30 steps at two thirds pay for 10 more"


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("phase", [(0.0, 0.5), (0.1, 1.0), (0.3, 0.9), (0.0, 1000), (37, 0.8)])
def test_matched_steps_are_the_nearest(phase: tuple[float, float], rate: float) -> None:
    def price(steps: int) -> float:
        first, last = (min(steps, int(x * steps if x <= 1 else x)) for x in phase)
        return steps - rate * max(0, last - first)

    for spent in (1, 3, 10, 52, 56, 400, 1250, 4001):
        found = matched_steps(price, spent, spent)
        nearest = min(range(1, 12 * spent + 9), key=lambda steps: abs(price(steps) - spent))
        assert abs(price(found) - spent) == abs(price(nearest) - spent), (spent, found, nearest)


def test_at_baseline_is_where_it_ends() -> None:
    for phase in ({}, {"routes_until": 40}, {"routes_from": 30}, {"routes_until": 105}):
        found = expansion(fixed={**CONSTANT, **phase}, evaluate=["heldout_loss at baseline, end"])
    assert [spec.step for spec in found.evaluations] == [100, None]
    unmatched = expansion(match=None, evaluate=["heldout_loss at baseline, end"])
    assert [spec.step for spec in unmatched.evaluations] == [None]
    assert [spec.step for spec in at_steps(decode_evaluations(["fd@1k at baseline"]), 7)] == [None]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"fixed": {"then": {"routes": []}}}, "match: must not be combined with `then`"),
        ({"fixed": {"train.steps": 0}}, "match: requires a baseline that trains"),
        (
            {"evaluate": ["heldout_loss at baseline"]},
            "^evaluate: .* got schedule sqrt_decay",
        ),
        *(
            (
                {"fixed": {**CONSTANT, **own}, "evaluate": ["heldout_loss at baseline"], **more},
                f"^evaluate: .* got {what}",
            )
            for what, own, more in (
                (f"a warm-up{SHARE}", {"train.warmup": 0.1}, {}),
                (f"a routed phase{SHARE}", {"routes_until": 0.5}, {}),
                ("schedule sqrt_decay", {}, {"baseline": FALLING}),  # of the baseline alone
            )
        ),
        (
            {
                "axes": {"route": ["2->8"], "spend": [1, 2]},
                "fixed": CONSTANT,
                "evaluate": ["heldout_loss at baseline"],
            },
            "^evaluate: `at baseline` requires baselines of equal length, got 100, 200 steps",
        ),
    ],
)
def test_unmatchable_sweep_is_refused(sweep: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        expansion(**sweep)
    assert "\n" not in str(refused.value)


def test_baseline_has_the_seed_of_its_trial() -> None:
    fixed = {"train.batch": "=B * 4", "train.schedule": "constant", "train.warmup": 0}
    more = {"fixed": fixed, "baseline": {"routes": [], "train.warmup": "=train.batch"}}
    baseline, trial = expansion(match=None, evaluate=[], seeds=[5], **more).trials
    assert (baseline.role, baseline.cell, baseline.baseline) == ("baseline", {}, None)
    assert trial.baseline == baseline.run == signature(baseline.spec)
    assert (baseline.seed, baseline.spec.seed, trial.spec.seed) == (5, 5, 5)
    assert trial.run == signature(trial.spec) and baseline.spec.routes == ()
    assert (baseline.spec.train.warmup, trial.spec.train.warmup) == (48, 0)
    (alone,) = expansion(match=None, evaluate=[], baseline=None).trials
    assert alone.baseline is None
