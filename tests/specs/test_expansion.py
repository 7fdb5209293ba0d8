"""Claims about expansion: what is checked first, which cells are left, and what each hole says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tread_lab.specs import HeldoutSpec, SamplesSpec, UserError, decode
from tread_lab.specs.expansion import ExcludedCells, Expansion, expand
from tread_lab.specs.metrics import ReferenceSpec
from tread_lab.specs.sweep import Experiment, SweepSpec

RUN = {"model": {"depth": 12, "width": 32, "heads": 2}, "train": {"steps": 10}}
COCO = ReferenceSpec(name="coco")


def expansion(run: dict[str, Any] | None = None, **sweep: Any) -> Expansion:
    tree = decode(SweepSpec, {"experiment": "tiny", **sweep})
    evaluate = ("heldout_loss", "fid@1k")
    named = Experiment(name="tiny", run=run or RUN, evaluate=evaluate, reference=COCO)
    return expand(tree, named)


@settings(deadline=None)
@given(
    starts=st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True),
    ends=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    rates=st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=1, max_size=3),
    seeds=st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
)
def test_trials_and_excluded_and_repeated_cells_are_the_product_paired_seed_by_seed(
    starts: list[int], ends: list[int], rates: list[float], seeds: list[int]
) -> None:
    product = list(itertools.product(starts, ends, dict.fromkeys(rates)))
    kept = [cell for cell in product if cell[0] < cell[1]]
    assume(kept)
    axes = {"route": {"start": starts, "end": ends}, "rate": rates}
    found = expansion(axes=axes, where="start < end", seeds=seeds)
    trials = [t for t in found.trials if t.role == "trial"]
    assert [(t.seed, *t.cell.values()) for t in trials] == [(s, *c) for s in seeds for c in kept]
    routes = [(r.start, r.end, r.rate) for t in trials for r in t.spec.routes]
    assert routes == kept * len(seeds)
    baselines = {t.seed: t.run for t in found.trials if t.role == "baseline"}
    assert [t.role for t in found.trials[: len(seeds)]] == ["baseline"] * len(seeds)
    assert len(set(baselines.values())) == len(seeds)
    assert all(t.baseline == baselines[t.seed] for t in trials)
    assert sum(hole.count for hole in found.excluded) == len(product) - len(kept)
    repeated = len(starts) * len(ends) * len(rates) - len(product)
    assert sum(hole.count for hole in found.duplicates) == repeated


def test_a_mistake_in_the_base_is_told_before_any_cell() -> None:
    with pytest.raises(UserError, match=r"^train: batch: must be positive, got 0$"):
        expansion({**RUN, "train": {"batch": 0}}, axes={"train.batch": [1, 2]})


def test_evaluations_are_the_sweeps_else_the_experiments_with_its_reference() -> None:
    usual = expansion(axes={"route": ["2->8"]}).evaluations
    assert usual == (HeldoutSpec(), SamplesSpec(metrics=("fid",), count=1000, reference=COCO))
    own = expansion(axes={"route": ["2->8"]}, evaluate=["is@500"]).evaluations
    assert own == (SamplesSpec(metrics=("is",), count=500),)
    assert expansion(axes={"route": ["2->8"]}, evaluate=[]).evaluations == ()


def test_a_mistake_in_a_rule_is_told_without_a_cell() -> None:
    with pytest.raises(UserError, match=r"^where: unknown name 'strat', did you mean 'start'\?$"):
        expansion(axes={"route": {"start": [0, 2], "end": [8]}}, where="strat == 0")
    with pytest.raises(UserError, match=r"^axes at start=9, end=8: .*; leave it out by `where`$"):
        expansion(axes={"route": {"start": [0, 9], "end": [8]}})


def test_a_hole_names_its_rule_counts_its_cells_and_shows_five_computed_ones() -> None:
    axes = {"route": {"start": "0..7", "end": "=start + 1"}}
    found = expansion(axes=axes, where=["start < 7", "start == 0"])
    assert found.excluded == (
        ExcludedCells("where: start < 7", 1, ({"start": 7, "end": 8},)),
        ExcludedCells(
            "where: start == 0", 6, tuple({"start": n, "end": n + 1} for n in range(1, 6))
        ),
    )
    with pytest.raises(UserError) as error:
        expansion(axes=axes, where=["start < 0", "end < 0"])
    assert str(error.value) == (
        "where: no cell of the axes is left; loosen it (8 miss where: start < 0)"
    )


def test_axes_times_variants_are_counted_before_they_are_crossed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tread_lab.specs.axes.MOST_CELLS", 3)
    variants = {"how": {"a": {}, "b": {"seed": 0}}}
    with pytest.raises(UserError, match=r"^axes and variants: 4 cells, more than 3; split"):
        expansion(axes={"route": ["2->8", "2->6"]}, variants=variants)


def test_cells_are_in_the_order_of_variants_axes_and_listed_trials_seed_by_seed() -> None:
    variants = {"how": {"a": {}, "b": {"train": {"warmup": 1}}}}
    found = expansion(
        variants=variants, axes={"route": ["2->8", "2->6"]}, trials=[{"route": "0->3"}],
        seeds=[1, 0],
    )  # fmt: skip
    trials = [t for t in found.trials if t.role == "trial"]
    one = [
        {"how": "a", "route": "2->8"}, {"how": "a", "route": "2->6"},
        {"how": "b", "route": "2->8"}, {"how": "b", "route": "2->6"}, {"route": "0->3"},
    ]  # fmt: skip
    assert [(t.seed, t.cell) for t in trials] == [(seed, cell) for seed in (1, 0) for cell in one]
    assert [(t.seed, t.spec.train.warmup) for t in found.trials if t.role == "baseline"] == [
        (1, 0), (1, 1), (0, 0), (0, 1)
    ]  # fmt: skip
