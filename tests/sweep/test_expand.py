"""Claims about expansion: which cells and trials a sweep makes, its holes, and its mistakes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tread_lab.config import RunSpec, UserError, decode, signature
from tread_lab.config.labels import ExcludedCells, Trial
from tread_lab.config.load import load_sweep
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.sweep.expand import Expansion, expand

RUN = {"model": {"depth": 12, "width": 32, "heads": 2}, "train": {"steps": 10}}
COCO = ReferenceSpec(name="coco")


def expansion(
    run: dict[str, Any] | None = None,
    sampler: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    **sweep: Any,
) -> Expansion:
    tree = decode(SweepSpec, {"experiment": "tiny", **sweep})
    evaluate = ("heldout_loss", "fid@1k")
    named = Experiment(
        name="tiny", run=run or RUN, sampler=sampler or {}, evaluate=evaluate, reference=COCO
    )
    return expand(tree, named, facts)


def trials(**sweep: Any) -> list[Trial[RunSpec]]:
    return [trial for trial in expansion(**sweep).trials if trial.role == "trial"]


def cells(**sweep: Any) -> list[dict[str, Any]]:
    return [trial.cell for trial in trials(**sweep)]


@settings(deadline=None, max_examples=30)
@given(
    starts=st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True),
    ends=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    rates=st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=1, max_size=3),
    seeds=st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
)
def test_cells_are_the_product_paired_by_seed(
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


def test_excluded_cells_are_counted_by_rule() -> None:
    axes = {"route": {"start": "0..7", "end": "=start + 1"}}
    shown = tuple({"start": n, "end": n + 1} for n in range(1, 6))
    assert expansion(axes=axes, where=["start < 7", "start == 0"]).excluded == (
        ExcludedCells("start < 7", 1, ({"start": 7, "end": 8},)),
        ExcludedCells("start == 0", 6, shown),
    )
    assert not expansion(axes=axes, where=None).excluded
    with pytest.raises(UserError, match=r"got none. Loosen it \(8 excluded by start < 0\)"):
        expansion(axes=axes, where=["start < 0", "end < 0"])


def test_fixed_part_applies_to_cells_with_it() -> None:
    def weights(fixed: Any = {"repa.weight": 0.3}, **more: Any) -> list[float | None]:  # noqa: B006
        found = expansion(fixed={"routes": ["2->8"], **fixed}, **more).trials
        return [None if t.spec.repa is None else vars(t.spec.repa)["weight"] for t in found]

    variants: dict[str, Any] = {"alignment": {"none": {}, "repa": {"repa.block": 1}}}
    assert weights(variants=variants) == [None, 0.3] * 2  # baselines, trials
    assert weights(trials=[{"repa": {"block": 1}}, {}]) == [0.3, None] * 2
    assert weights(axes={"rate": [0.5]}) == [0.3] * 2  # no cell says anything of it
    whole = {"repa": {"block": 2, "weight": 0.3}}  # written of every run
    assert (
        weights(whole, variants={"alignment": {"none": {}, "a": {"repa.hidden": 8}}}) == [0.3] * 4
    )
    of_all = {**RUN, "repa": {"block": 2}}
    assert weights(run=of_all, variants=variants) == [0.3] * 4
    variants["alignment"]["none"] = {"repa": None}
    with pytest.raises(
        UserError, match=r"^fixed and variants\.alignment\.none both set repa\.weight"
    ):
        weights(variants=variants)


def test_values_are_computed_from_each_other() -> None:
    axes = {"model.depth": [12, 24], "route": {"start": [2, 3], "end": "=start + B//2"}}
    found = trials(axes={**axes, "train.lr": "=6e-3 * (1 - rate)"})
    routes = [(t.spec.model.depth, str(t.spec.routes[0])) for t in found]
    assert routes == [(12, "2->8"), (12, "3->9"), (24, "2->14"), (24, "3->15")]
    assert {t.spec.train.lr for t in found} == {3e-3}
    assert (found[0].cell["train.lr"], found[0].cell["end"]) == (3e-3, 8)
    all_of = expansion(
        variants={"how": {"short": {"then": {"train": {"steps": "=train.steps // 2"}}}}},
        axes={"rate": ["=N / 128", 0.25], "train.steps": ["=train.batch * 2"]},
        fixed={"routes": [{"start": 2, "end": "=min(B - 4, 9)"}], "train.batch": "=B + 4"},
        baseline={"routes": [], "train.lr": "=rate / 100"},
    ).trials
    trial = all_of[-1].spec
    assert (trial.train.batch, trial.train.steps, trial.routes[0].end) == (16, 16, 8)
    assert trial.init_from is not None and trial.init_from.run.train.steps == 32
    assert sorted(t.spec.train.lr for t in all_of if t.role == "baseline") == [2.5e-3, 5e-3]


def test_equal_cells_run_once() -> None:
    found = expansion(
        axes=[{"route": ["2->8", "0->3"]}, {"route": ["2->8"]}, {"route": ["2->B-4"], "rate": [0]}],
        trials=[{"route": "0->3"}, {"route": {"start": 2, "end": "B-4"}}],
        seeds=[0, 1],
    )
    assert [t.role for t in found.trials] == ["baseline"] * 2 + ["trial"] * 8
    assert found.trials[4].run == found.trials[4].baseline == found.trials[0].run


def test_finetunes_share_their_parent() -> None:
    then = {"routes": [], "train": {"steps": 5, "lr": 1e-3}}
    variants = {"tune": {"none": {}, "some": {"then": then}, "more": {"then": {"routes": []}}}}
    found = expansion(fixed={"routes": ["2->8"]}, variants=variants).trials
    runs, (routed, *children) = {t.run: t.spec for t in found}, found[3:]
    for child in children:
        assert child.spec.parent is not None and signature(child.spec.parent) == routed.run
        dense = runs[str(child.baseline)]
        assert dense.train == child.spec.train and dense.parent is not None
        assert dense.parent.routes == ()
    assert len(runs) == 6


@pytest.mark.parametrize(
    ("baseline", "routes"),
    [
        ({"routes": []}, [(), (), ()]),
        ({"routes": [], "then.routes": ["0->8"]}, [(), (0,), ()]),
        ({"routes": ["0->8"]}, [(0,), (3,), ()]),
        ({"routes": [], "then": None}, [()]),
    ],
)
def test_dense_baseline_is_dense_in_every_phase(
    baseline: dict[str, Any], routes: list[tuple[int, ...]]
) -> None:
    for own in ({"routes": ["3->8"]}, {"route": "3->8"}, {"route.start": 3, "rate": 0.25}):
        then = {**own, "train.lr": 0.1, "then": {"routes": []}}
        run = {**RUN, "routes": ["1->8"], "then": then}
        dense = expansion(run, trials=[{"route": "2->8"}], baseline=baseline).trials[0].spec
        family = [*dense.ancestors, dense]
        assert [tuple(route.blocks[0] for route in run.routes) for run in family] == routes
        assert [run.train.lr for run in family[1:]] == [0.1 for _ in routes[1:]]


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        (
            {"axes": {"zip": {"train.lr": [1, 2], "train.steps": [1]}}},
            "axes.zip: must have the same number of values on each axis; axes.zip.train.lr has 2",
        ),
        ({"variants": {"m": {"a": {}}}, "axes": {"m": ["b"]}}, "axes.m: no variant 'b'"),
        (
            {"axes": {"zip": {"train.lr": [1], "rate": [0]}, "train": {"lr": [2]}}},
            "axes.zip and axes.train both set train.lr; write one of them",
        ),
        (
            {"axes": {"route": ["2->8"], "routes": [["2->5"]]}},
            "route and routes both set routes",
        ),
        (
            {"variants": {"m": {"a": {"train": {"lr": 1}}}}, "axes": {"train.lr": ["=rate / 2"]}},
            "variants.m.a and train.lr both set train.lr",
        ),
        (
            {"fixed": {"train.lr": 1}, "axes": {"train": {"lr": [2]}}},
            "fixed and train.lr both set train.lr; write one of them",
        ),
        (
            {"fixed": {"process.p_mean": -1}, "trials": [{"train.lr": 1}, {"process": "flow"}]},
            "process: unknown key 'p_mean'",
        ),
        ({"variants": {"m": {"a": {"seed": 3}}}}, "variants.m.a.seed: must be set by `seeds`"),
        (
            {"sampler_axes": {"steps": [4]}, "evaluate": ["heldout_loss"]},
            "sampler_axes: requires an evaluation of samples",
        ),
    ],
)
def test_mistakes_name_their_place(sweep: dict[str, Any], said: str, in_folder: Path) -> None:
    Path("s.yaml").write_text(yaml.safe_dump({"experiment": "tiny", **sweep}, sort_keys=False))
    with pytest.raises(UserError, match=r"^[^\n]*$") as error:
        expand(*load_sweep("s")[1:])
    assert said in str(error.value)
