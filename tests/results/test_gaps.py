"""Paired gaps equal the truth, intervals the textbook's, and only like is paired with like."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.synthetic import (
    FD,
    heldout_gap,
    small,
    tiny_spec,
    train_gap,
    with_provenance,
    write_sweep,
)
from tread_lab.config import HeldoutSpec, RunSpec, UserError, signature
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import INFLUENCES
from tread_lab.results import cells_frame, trials_frame, with_delta
from tread_lab.results.gaps import (
    Losses,
    gap_over_images,
    loss_gaps,
    losses_paths,
    recorded_gaps,
    run_gaps,
)
from tread_lab.results.intervals import t_interval
from tread_lab.results.ranking import formatted, ranking

BASELINE, TRIAL = signature(tiny_spec(None)), signature(tiny_spec((2, 8)))


def test_interval_over_images_is_the_paired_t_interval() -> None:
    rng = np.random.default_rng(0)
    trial, baseline = rng.normal(size=(2, 40, 8))
    gap = gap_over_images(trial, baseline)
    reference = stats.ttest_rel(trial.mean(axis=1), baseline.mean(axis=1))
    interval = reference.confidence_interval(0.95)
    assert (gap.low, gap.high) == pytest.approx((interval.low, interval.high))
    assert gap.mean == pytest.approx(float(trial.mean() - baseline.mean()))
    assert (gap.n, gap.unit) == (40, "images")
    apart = trial.mean(axis=1).var(ddof=1) + baseline.mean(axis=1).var(ddof=1)
    paired = (trial - baseline).mean(axis=1).var(ddof=1)
    assert gap.kept == pytest.approx(paired / apart)


def test_run_gaps_are_the_true_ones(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    gaps, own = run_gaps(lab, TRIAL, BASELINE), run_gaps(lab, BASELINE, BASELINE)
    assert set(own) == {"gap/train", "gap/heldout"}  # nothing is routed
    assert {(gap.mean, gap.low, gap.high) for gap in own.values()} == {(0.0, 0.0, 0.0)}
    heldout, train = heldout_gap((2, 8)), train_gap((2, 8))
    assert gaps["gap/heldout"].mean == pytest.approx(heldout)
    assert gaps["gap/train"].mean == pytest.approx(train)
    assert gaps["gap/route"].mean == pytest.approx(train - heldout)
    assert all(gap.low < gap.mean < gap.high and gap.n == 32 for gap in gaps.values())


def evaluated(lab: Lab, spec: RunSpec, evaluation: HeldoutSpec, **losses: np.ndarray) -> str:
    """A run with these losses under `evaluation`."""
    folder = lab.run_of(spec).evaluation(evaluation)
    folder.path.mkdir(parents=True)
    np.savez(folder.path / "losses.npz", **losses)
    folder.write(evaluation, {})
    return signature(spec)


def test_the_planned_evaluation_is_taken_else_the_largest_shared_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for images, gap in ((8, 0.1), (16, 0.2)):
        spec, ones = HeldoutSpec(images=images, levels=2), np.ones((images, 2))
        evaluated(lab, tiny_spec((2, 8)), spec, dense=ones + gap, level=ones)
        evaluated(lab, tiny_spec(None), spec, dense=ones, level=ones)
    named = signature(HeldoutSpec(images=8, levels=2))
    for planned, gap in (([], 0.2), ([named], 0.1), (["another"], 0.2)):
        found = run_gaps(lab, TRIAL, BASELINE, planned=planned)
        assert found["gap/heldout"].mean == pytest.approx(gap)


def test_other_levels_under_one_name_are_refused_with_both_runs(tmp_path: Path) -> None:
    lab, spec, ones = Lab(tmp_path), HeldoutSpec(images=8, levels=2), np.ones((8, 2))
    a = evaluated(lab, tiny_spec((2, 8)), spec, dense=ones, level=ones * 1.1)
    b = evaluated(lab, tiny_spec(None), spec, dense=ones, level=ones)
    with pytest.raises(UserError, match=f"^runs {a} and {b} cannot be .*noise levels differ"):
        run_gaps(lab, a, b)


def test_losses_that_are_not_finite_give_no_gap() -> None:
    ones = np.ones((4, 2))
    broken = np.where(np.eye(4, 2) > 0, np.inf, ones)
    gaps = loss_gaps(Losses(ones, broken, ones), Losses(ones, None, ones))
    assert set(gaps) == {"gap/heldout"}
    assert loss_gaps(Losses(ones, None, ones), Losses(broken, None, ones)) == {}


@pytest.mark.parametrize(("level", "same"), [(1 + 5e-7, True), (1 + 5e-6, False)])
def test_levels_may_differ_by_rounding_alone(level: float, same: bool) -> None:
    for scale in (1.0, 1e-9):  # a level near 0 is no equal of any other
        ones = np.ones((4, 2))
        trial, baseline = (Losses(ones, None, ones * x) for x in (scale * level, scale))
        if same:
            assert loss_gaps(trial, baseline)["gap/heldout"].mean == 0.0
        else:
            with pytest.raises(UserError, match="noise levels differ"):
                loss_gaps(trial, baseline)


ONES = np.ones((4, 2))


def losses_of(root: Path, name: str, dense: np.ndarray, routed: float | None = None) -> Path:
    """A file of losses, all at level 1."""
    more = {} if routed is None else {"routed": np.full(dense.shape, routed)}
    np.savez(root / f"{name}.npz", dense=dense, level=np.ones(dense.shape), **more)
    return root / f"{name}.npz"


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    trial = {"a": losses_of(tmp_path, "trial", ONES + 1)}
    baseline = {"a": losses_of(tmp_path, "dense", ONES)}
    assert recorded_gaps(trial, baseline)["gap/heldout"].mean == 1.0
    losses_of(tmp_path, "dense", ONES - 2)
    assert recorded_gaps(trial, baseline)["gap/heldout"].mean == 3.0
    losses_of(tmp_path, "trial", ONES + 5)
    assert recorded_gaps(trial, baseline)["gap/heldout"].mean == 7.0
    baseline["a"].unlink()
    with pytest.raises(
        UserError, match=r"dense.npz must be a record of losses, got .*No such file.*. Try"
    ):
        recorded_gaps(trial, baseline)


def test_losses_on_other_held_out_data_are_never_paired(tmp_path: Path) -> None:
    lab, (spec, _) = write_sweep(tmp_path, small()), small().evaluations
    name = "held-out data latents 3f2a"
    with_provenance(lab.run(BASELINE), spec, {name: "a"})
    assert run_gaps(lab, TRIAL, BASELINE)  # whose record does not say it
    told = ((name, "a", True), (name, "b", False), (f"{name}0", "a", False))
    for what, digest, paired in told:
        with_provenance(lab.run(TRIAL), spec, {what: digest, "decoder": "c"})
        os.utime(losses_paths(lab.run(TRIAL))[signature(spec)])
        if paired:
            assert run_gaps(lab, TRIAL, BASELINE)
            continue
        with pytest.raises(UserError, match="cannot be paired: their held-out data differ"):
            run_gaps(lab, TRIAL, BASELINE)
        row = trials_frame(lab, "placement").set_index("run").loc[TRIAL]
        assert row["reason"] == "their held-out data differ"
        assert np.isnan(row["gap/heldout"])


def test_one_seeds_distance_has_sampled_interval(tmp_path: Path) -> None:
    """Paired images cancel what two networks share; several seeds show their own interval."""
    lab = write_sweep(tmp_path, small())
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=1000), 0.1 * rng.normal(size=1000)
    for name, values in ((BASELINE, shared), (TRIAL, shared + own)):
        for folder in lab.run(name).evaluations():
            tree = folder.read() or {}
            if tree["spec"]["kind"] == "samples":
                metric, error = next(iter(tree["metrics"])), values.std(ddof=1) / 1000**0.5
                write_json(
                    folder.path / "metrics.json", {**tree, "standard_errors": {metric: error}}
                )
                np.savez(folder.path / INFLUENCES, **{metric: values})
    frame = with_delta(trials_frame(lab, "placement"), FD)
    cell = cells_frame(frame).set_index("route").loc["2->8"]
    for metric, spread in ((FD, (shared + own).std(ddof=1)), (f"delta/{FD}", own.std(ddof=1))):
        half = stats.t.ppf(0.975, 999) * spread / 1000**0.5
        assert cell[metric + ":high"] - cell[metric] == pytest.approx(half)
        assert cell[metric] - cell[metric + ":low"] == pytest.approx(half)
        assert (cell[metric + ":n"], cell[metric + ":unit"]) == (1000, "samples")
    heads = formatted(ranking(frame, "gap/heldout", beside=[FD]), "gap/heldout")
    assert "±" in heads[f"{FD}, ± of samples"].iloc[0]


def test_sets_of_images_give_an_interval(tmp_path: Path) -> None:
    """Over three sets of equal seeds; a difference is paired by set."""
    lab = write_sweep(tmp_path, small())
    sets = {BASELINE: np.array([8.0, 9.0, 7.0]), TRIAL: np.array([8.1, 9.3, 7.2])}
    for name, values in sets.items():
        for folder in lab.run(name).evaluations():
            tree = folder.read() or {}
            if tree["spec"]["kind"] == "samples":
                metric = next(iter(tree["metrics"]))
                own = {"metrics": {metric: values.mean()}, "sets": {metric: [*values]}}
                write_json(folder.path / "metrics.json", {**tree, **own})
    cell = cells_frame(with_delta(trials_frame(lab, "placement"), FD)).set_index("route")
    apart = {FD: sets[TRIAL], f"delta/{FD}": sets[TRIAL] - sets[BASELINE]}
    for metric, values in apart.items():
        found = cell.loc["2->8", [metric, metric + ":low", metric + ":high"]]
        assert found.tolist() == pytest.approx(t_interval(values))
