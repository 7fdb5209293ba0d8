"""Loss gaps between runs, paired image by image or seed by seed, each with its interval."""

# M images, L noise levels

from __future__ import annotations

import functools
import math
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import end_signature
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT, GAP_ROUTE, GAP_TRAIN
from tread_lab.records.run_folder import EvaluationFolder, RunFolder
from tread_lab.results.intervals import pairing_kept, t_interval

Array = NDArray[np.float64]
SAME_LEVEL = 1e-6  # relative: levels of equal specs differ by rounding between machines at most


@dataclass(frozen=True)
class PairedGap:
    """A mean difference with its t-interval.

    Attributes:
        mean, low, high: the gap and the ends of its 95% interval; negative is better than baseline.
        n, unit: number of images or seeds of the interval. An interval over images is about this
            pair of runs; one over seeds also covers other seeds.
        kept: variance of the paired gap relative to an unpaired one; 0.05 is twenty times smaller.
            NaN over seeds.
    """

    mean: float
    low: float
    high: float
    n: int
    unit: Literal["images", "seeds"]
    kept: float = math.nan


@dataclass(frozen=True)
class Losses:
    """The held-out losses of one run under one evaluation, [M, L] each.

    Attributes:
        dense: dense forward.
        routed: forward under the training routes; absent for a run without routes.
        level: noise level of each image and forward pass.
        data: digests of the held-out data by name.
    """

    dense: Array
    routed: Array | None
    level: Array
    data: frozenset[tuple[str, str]] = frozenset()

    @property
    def trained(self) -> Array:
        """Loss of the trained forward pass: routed, or dense without routes."""
        return self.dense if self.routed is None else self.routed

    @staticmethod
    def read(path: Path) -> Losses:
        """Raises UserError: the file is absent or damaged."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
            data = _measured_on(path)
            return Losses(arrays["dense"], arrays.get("routed"), arrays["level"], data)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(
                f"{path} must be a record of losses, got {error}. Try evaluating again."
            ) from None


def gap_over_images(loss_ML: Array, baseline_ML: Array) -> PairedGap:
    """Mean over images of the paired difference, averaged over levels within each image.

    Both arrays have equal images, levels and noise per entry, so shared variation cancels.
    """
    if loss_ML.shape != baseline_ML.shape or loss_ML.ndim != 2:
        raise UserError(f"losses of {loss_ML.shape} and {baseline_ML.shape} cannot be paired")
    a, b = loss_ML.mean(axis=1), baseline_ML.mean(axis=1)
    return PairedGap(*t_interval(a - b), len(a), "images", pairing_kept(a, b))


def loss_gaps(losses: Losses, baseline: Losses) -> dict[str, PairedGap]:
    """`gap/train`, `gap/heldout` and, for a routed run, `gap/route`, over images.

    G_train = routed forward - baseline's dense forward (the gap of training curves), G_heldout =
    dense forward - baseline's dense forward, G_route = routed - dense of the same run. Gaps with
    non-finite losses are omitted.

    Raises:
        UserError: other images or noise levels.
    """
    _same_levels(losses, baseline)
    pairs = {
        GAP_TRAIN: (losses.trained, baseline.dense),
        GAP_HELDOUT: (losses.dense, baseline.dense),
    }
    return {**_finite_gaps(pairs), **route_gap(losses)}


def route_gap(losses: Losses) -> dict[str, PairedGap]:
    """`gap/route` of one run, which needs no baseline; empty for a run without routes."""
    return _finite_gaps({} if losses.routed is None else {GAP_ROUTE: (losses.routed, losses.dense)})


def run_gaps(
    lab: Lab, trial_run: str, baseline_run: str, *, planned: Collection[str] = ()
) -> dict[str, PairedGap]:
    """Return the gaps of one run to another from their recorded losses.

    Without a common evaluation, only `gap/route` is returned.

    Args:
        trial_run, baseline_run: signatures of the two runs.
        planned: signatures of evaluations; the largest common one is used, else the largest common
            one of all.

    Raises:
        UserError: damaged losses, or other images or levels.
    """
    trial, baseline = (losses_paths(lab.run(name)) for name in (trial_run, baseline_run))
    try:
        return recorded_gaps(trial, baseline, planned)
    except UserError as error:
        raise UserError(f"runs {trial_run} and {baseline_run} cannot be paired: {error}") from None


def difference_errors(trial: Path, baseline: Path) -> dict[str, float]:
    """Return the standard error of the difference of two runs, by Frechet distance.

    Images are paired, because both runs draw them from equal seeds.

    Args:
        trial, baseline: files of influences of one evaluation.
    """
    with np.load(trial, allow_pickle=False) as one, np.load(baseline, allow_pickle=False) as other:
        apart = {name: one[name] - other[name] for name in one.files if name in other.files}
    return {name: float(x_N.std(ddof=1) / np.sqrt(len(x_N))) for name, x_N in apart.items()}


def losses_paths(run: RunFolder, step: int | None = None) -> dict[str, Path]:
    """Return evaluation signature -> file of losses, for held-out evaluations at the end of a run.

    Args:
        step: for evaluations at this step instead, under the signatures of those at the end.
    """
    paths = {}
    for folder in run.evaluations():
        tree = folder.read()
        if tree is not None and (spec := tree.get("spec", {})).get("step") == step:
            name = end_signature(spec) if step else folder.path.name
            paths[name] = folder.path / "losses.npz"
    return {name: path for name, path in paths.items() if path.exists()}


def recorded_gaps(
    trial: dict[str, Path], baseline: dict[str, Path], planned: Collection[str] = ()
) -> dict[str, PairedGap]:
    """Return `run_gaps` of two sets of losses, paired by evaluation signature.

    `planned` evaluations come first, so that other sweeps do not change gaps.
    """
    best = common_evaluation([trial, baseline], planned) or common_evaluation([trial], planned)
    if best is None:
        return {}
    losses = Losses.read(trial[best])
    if best not in baseline:
        return route_gap(losses)
    return loss_gaps(losses, _read_once(baseline[best]))


def common_evaluation(
    sides: Sequence[Mapping[str, Path]], planned: Collection[str] = ()
) -> str | None:
    """Return the evaluation by which losses of several runs are compared: common to all, planned
    first, then the largest; or `None`.

    Args:
        sides: `losses_paths` of each run.
    """
    first = sides[0]
    common = [name for name in first if all(name in paths for paths in sides)]
    common = [name for name in common if name in planned] or common
    if len(common) < 2:
        return next(iter(common), None)
    return max(common, key=lambda name: _read_once(first[name]).dense.size)


def _read_once(path: Path) -> Losses:
    return _read(path, modified(path))


@functools.lru_cache(maxsize=64)  # a baseline is met again by each of its trials
def _read(path: Path, _modified: float | None) -> Losses:
    return Losses.read(path)


def _measured_on(path: Path) -> frozenset[tuple[str, str]]:
    """Return which held-out data the losses in a file are of."""
    made_with = (EvaluationFolder(path.parent).read() or {}).get("made_with", {})
    return frozenset(fact for fact in made_with.items() if fact[0].startswith("held-out data"))


def _finite_gaps(pairs: dict[str, tuple[Array, Array]]) -> dict[str, PairedGap]:
    return {
        name: gap_over_images(loss, baseline)
        for name, (loss, baseline) in pairs.items()
        if np.isfinite(loss).all() and np.isfinite(baseline).all()
    }


def _same_levels(losses: Losses, baseline: Losses) -> None:
    if losses.data and baseline.data and losses.data != baseline.data:
        raise UserError("their held-out data differ")
    own, theirs = losses.level, baseline.level
    if own.shape == theirs.shape and not np.allclose(own, theirs, rtol=SAME_LEVEL, atol=0):
        raise UserError("their noise levels differ; evaluate both again with the same spec")
