"""What a metric needs on this machine: images, torch-fidelity, weights; asked before sampling."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.reference_file import open_reference
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import INCEPTION, METRICS, OWN_FEATURES, by_extractor, extractor_for

OF_FIDELITY = ("kid",)  # metrics that torch-fidelity computes from features of any kind


def check_requirements(
    spec: SamplesSpec,
    source: str,
    *,
    preview: bool,
    shape: tuple[int, int, int] | None = None,
    heldout: int | None = None,
) -> None:
    """Refuse metrics that cannot be computed here, before a single image is drawn.

    Args:
        source: the data source of the run.
        preview: whether its samples cannot be shown as images.
        shape: (C, H, W) of the images that samples become, where it is known.
        heldout: how many samples are held out, where it is known; an export has none.

    Raises:
        UserError: an unknown metric, no decoder, no torch-fidelity, weights that are absent or
            not the published ones, a reference that is absent, wrong, of another shape, or too
            small.
    """
    metrics = spec.metrics
    spaces = by_extractor(metrics, source)
    if preview and metrics:
        raise UserError(
            f"metrics: {metrics[0]} needs images, and these latents have no decoder; name the SD"
            " autoencoder's folder in TREAD_LAB_AUTOENCODER, or leave the metric out"
        )
    for metric in metrics:
        if metric in OF_FIDELITY or extractor_for(metric, source) == INCEPTION:
            check_torch_fidelity(f"metrics: {metric}")
            break
    for name in spaces:
        SPACES[name].weights()
        own = name in OWN_FEATURES.values() and [m for m in spaces[name] if METRICS[m].compares]
        if own and spec.reference is not None:
            raise UserError(
                f"reference: {own[0]} is in features of {source}'s own images, and compares with"
                f" those alone; leave the reference out of it: `reference: heldout`"
            )
    if spec.reference is None and heldout:
        _check_heldout(metrics, heldout)
    if spec.reference is not None:
        file = open_reference(spec.reference, metrics)
        if shape is not None:
            file.check_size(shape)


def _check_heldout(metrics: Sequence[str], count: int) -> None:
    """Refuse metrics that are not defined for so few held-out images."""
    for metric in (name for name in metrics if METRICS[name].compares):
        if count < (fewest := METRICS[metric].fewest_real):
            raise UserError(
                f"metrics: {metric} compares with at least {fewest} images, and the data hold out"
                f" {count}; name a file of statistics (reference), or leave the metric out"
            )


def check_torch_fidelity(what: str) -> None:
    """Refuse what needs torch-fidelity where it is not installed."""
    if importlib.util.find_spec("torch_fidelity") is None:
        raise UserError(f"{what} needs the package torch-fidelity: `pip install torch-fidelity`")
