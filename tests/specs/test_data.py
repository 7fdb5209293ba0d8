"""The factors of latents follow from what a source holds; images have no factor of a decoder."""

from __future__ import annotations

import pytest

from tread_lab.specs import DataSpec


@pytest.mark.parametrize(
    ("source", "scale", "decoder_scale", "scales"),
    [
        ("fashion16", None, 2.0, (1.0, None)),
        ("latents", None, None, (1.0, None)),
        ("latents", None, 0.5, (0.5, None)),
        ("latents", 0.5, None, (0.5, None)),
        ("latents", 1.0, 0.5, (1.0, 0.5)),
        ("shards", None, None, (1.0, 0.18215)),
        ("shards", 0.5, None, (0.5, None)),
    ],
)
def test_factors_that_a_spec_leaves_out(
    source: str,
    scale: float | None,
    decoder_scale: float | None,
    scales: tuple[float, float | None],
) -> None:
    spec = DataSpec(source=source, scale=scale, decoder_scale=decoder_scale)
    assert (spec.scale, spec.decoder_scale) == scales
