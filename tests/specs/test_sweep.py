"""Claims about sweep files: order, holes, baselines, shared runs."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import UserError, decode
from tread_lab.specs.expansion import expand
from tread_lab.specs.sweep import Experiment, SearchSpec, StopEarlySpec, SweepSpec

RUN = {"model": {"depth": 12, "width": 32, "heads": 2}, "train": {"steps": 10}}
TINY = Experiment(name="tiny", run=RUN, evaluate=("heldout_loss",))


def expansion(**sweep: Any):
    return expand(decode(SweepSpec, {"experiment": "tiny", **sweep}), TINY)


def test_the_papers_sixteen_placements_and_their_baseline() -> None:
    found = expansion(
        axes={"route": {"start": "0..7", "end": "2..10"}, "rate": [0.5]},
        where="start == 0 or end == 8",
    )
    names = [str(t.spec.routes[0]) if t.spec.routes else "dense" for t in found.trials]
    assert names == ["dense", *(f"0->{j}" for j in range(2, 11)), *(f"{i}->8" for i in range(1, 8))]
    assert found.trials[0].role == "baseline" and found.trials[0].baseline is None
    assert {t.baseline for t in found.trials[1:]} == {found.trials[0].run}
    (hole,) = found.excluded
    assert hole.count == 8 * 9 - 16 and "start == 0 or end == 8" in hole.reason
    assert hole.examples[0] == {"start": 1, "end": 2, "rate": 0.5}


def test_the_baseline_is_the_trial_with_some_fields_changed_so_groups_have_their_own() -> None:
    found = expansion(axes={"route": ["2->8"], "precision": ["fp32", "bf16"]})
    assert [t.spec.precision for t in found.trials] == ["fp32", "bf16", "fp32", "bf16"]
    by_run = {t.run: t.spec for t in found.trials}
    for trial in found.trials[2:]:
        assert by_run[trial.baseline].precision == trial.spec.precision
    shared = expansion(
        axes={"route": ["2->8"], "precision": ["fp32", "bf16"]},
        baseline={"routes": [], "precision": "fp32"},
    )
    assert len({t.baseline for t in shared.trials[1:]}) == 1


def test_rate_zero_shares_the_baselines_run() -> None:
    found = expansion(axes={"route": ["2->8"], "rate": [0, 0.25, 0.5]})
    assert len(found.trials) == 4 and len({t.run for t in found.trials}) == 3
    assert found.trials[1].run == found.trials[0].run == found.trials[1].baseline


def test_several_grids_and_dotted_axes() -> None:
    found = expansion(
        axes=[
            {"route": ["0->3"], "train.lr": [1e-3, 2e-3]},
            {"route": [{"start": 2, "end": "B-4"}]},
        ]
    )
    trials = [t for t in found.trials if t.role == "trial"]
    assert [(str(t.spec.routes[0]), t.spec.train.lr) for t in trials] == [
        ("0->3", 1e-3),
        ("0->3", 2e-3),
        ("2->8", 1e-4),
    ]


def test_positions_in_where_are_resolved() -> None:
    found = expansion(
        axes={"route": {"start": [2, "1/6"], "end": ["B-4", 5]}},
        where="end == B - 4 and length > 6",
    )
    assert len({t.run for t in found.trials if t.role == "trial"}) == 1


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"axes": {"route": {"start": "0..5", "end": [3]}}}, "axes at start=4, end=3"),
        ({"axes": {"lr": [1]}}, "axes.lr: no such field, did you mean 'train.lr'?"),
        ({"axes": {"rate": []}}, "axes.rate: has no values"),
        ({"axes": [1]}, "axes: expected a mapping of axes"),
        ({"axes": {"seed": ["0..x"]}}, "is not a range"),
        ({"fixed": {"train": {"stepss": 3}}}, "train: unknown key 'stepss'"),
        ({"axes": {"rate": [0.5]}, "where": "start > 1"}, "'start' needs a route"),
        (
            {"axes": {"rate": [0.5]}},
            "routes[0]: missing key 'start': a route has a start and an end, as route=2->8 gives",
        ),
    ],
)
def test_mistakes_are_named(sweep: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        expansion(**sweep)
    assert message in str(error.value)


def test_equal_cells_and_equal_runs_are_said() -> None:
    found = expansion(
        axes=[{"route": ["2->8", "0->3"]}, {"route": ["2->8"]}, {"route": ["2->B-4"], "rate": [0]}],
        trials=[{"route": "0->3"}, {"route": {"start": 2, "end": "B-4"}}],
    )
    said = [(same.reason, same.count) for same in found.duplicates]
    assert said == [
        ("written again", 2),
        ("the run of a baseline", 1),
        ("the run of another cell", 1),
    ]
    assert found.duplicates[0].examples == ({"route": "2->8"}, {"route": "0->3"})
    assert len(found.trials) == 1 + 4


def test_the_base_is_not_changed_by_its_cells() -> None:
    before = repr(TINY)
    expansion(axes={"route": ["2->8"], "train.steps": [1, 2], "model.depth": [12, 14]})
    assert repr(TINY) == before


def test_cells_that_equal_others_are_counted_once_for_all_seeds() -> None:
    same = {"axes": {"route": ["2->8"]}, "trials": [{"route": {"start": 2, "end": "B-4"}}]}
    found = expansion(**same, seeds=[0, 1, 2])
    assert [(hole.reason, hole.count) for hole in found.duplicates] == [
        ("the run of another cell", 1)
    ]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"sampler": "tpo"}, "search.sampler"),
        ({"trails": 3}, "did you mean 'trials'"),
        ({"trials": 0}, "search: trials: must be positive"),
        ({"sampler": "nsgaii"}, "nsgaii weighs several"),
        ({"objectives": ["gap/heldout", "gap/heldout"]}, "must be distinct"),
    ],
)
def test_a_mistake_in_a_search_is_named(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match="search") as raised:
        decode(SearchSpec, tree, "search")
    assert message.removeprefix("search: ") in str(raised.value)


def test_the_limit_of_cells_counts_their_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tread_lab.specs.axes.MOST_CELLS", 12)
    axes = {"route": ["2->5", "2->6", "2->7", "2->8"]}
    assert len(expansion(axes=axes, seeds="0..2").trials) == 3 + 12
    with pytest.raises(UserError, match=r"^cells and seeds: 16 cells, more than 12; split"):
        expansion(axes=axes, seeds="0..3")


def test_no_run_is_judged_at_its_last_step() -> None:
    assert StopEarlySpec(grace=1).rungs(9) == (1, 3)
    assert StopEarlySpec(grace=1).rungs(10) == (1, 3, 9)
    assert StopEarlySpec(kind="median", grace=2).rungs(6) == (2, 4)


def test_a_run_of_a_few_steps_is_first_judged_at_its_first_step() -> None:
    assert [StopEarlySpec().first_rung(steps) for steps in (1, 8, 9, 18, 900)] == [1, 1, 1, 2, 100]
    assert StopEarlySpec(grace=7).first_rung(3) == 7
    assert StopEarlySpec().rungs(8) == (1, 3)


def test_a_rule_may_be_its_kind_alone_and_one_objective_is_enough_for_most_samplers() -> None:
    assert decode(StopEarlySpec, "median") == StopEarlySpec(kind="median")
    for sampler in ("tpe", "gp", "random"):
        assert decode(SearchSpec, {"sampler": sampler}).objectives == ()


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([], "seeds: \\[\\] must be distinct, at least one"), ([1, 1], "must be distinct"),
     ([3, -1], "seeds: must not be negative, got -1"), ("0..x", "is not a range"),
     ("0.5..1.5 linear 3", "seeds: whole numbers, got 0.5..1.5")],
)  # fmt: skip
def test_seeds_that_cannot_be_are_refused(seeds: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        decode(SweepSpec, {"experiment": "tiny", "seeds": seeds})


def test_names_of_variants_are_texts() -> None:
    tree = {"experiment": "tiny", "variants": {3: {"a": {}}}}
    assert decode(SweepSpec, tree).variants == {"3": {"a": {}}}
    with pytest.raises(UserError, match=r"variants\.route: routes have a field of this name"):
        decode(SweepSpec, {"experiment": "tiny", "variants": {"route": {"a": {}}}})
    with pytest.raises(UserError, match=r"variants\.m: expected {name: {field: value}}"):
        decode(SweepSpec, {"experiment": "tiny", "variants": {"m": {"a": {}, "b": 3}}})
