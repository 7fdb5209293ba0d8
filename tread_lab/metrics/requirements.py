"""What a metric needs on this machine: images, torch-fidelity, weights; asked before sampling."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from tread_lab.metrics.extractor import weights_path
from tread_lab.metrics.feature_space import INCEPTION, by_extractor
from tread_lab.metrics.inception import inception_weights
from tread_lab.specs.errors import UserError


def check_requirements(metrics: Sequence[str], source: str, *, preview: bool) -> None:
    """Refuse metrics that cannot be computed here, before a single image is drawn.

    Args:
        source: the data source of the run.
        preview: whether its samples cannot be shown as images.

    Raises:
        UserError: an unknown metric, no decoder, no torch-fidelity, or weights that are absent or
            not the published ones.
    """
    spaces = by_extractor(metrics, source)
    if preview and metrics:
        raise UserError(
            f"metrics: {metrics[0]} needs images, and these latents have no decoder; name the SD"
            " autoencoder's folder in TREAD_LAB_AUTOENCODER, or leave the metric out"
        )
    if metrics and importlib.util.find_spec("torch_fidelity") is None:
        raise UserError(
            f"metrics: {metrics[0]} needs the package torch-fidelity: `pip install torch-fidelity`"
        )
    for name in spaces:
        if name == INCEPTION:
            inception_weights()
        elif not weights_path(name).is_file():
            raise UserError(f"metrics: the weights of {name!r} are not at {weights_path(name)}")
