"""The factors of latents follow from what a source holds; what changes no sample is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import DataSpec, signature


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
        ("shards", None, 0.5, (1.0, 0.5)),
        ("folder", None, 0.5, (0.5, None)),
        ("images", None, 0.5, (1.0, None)),
        ("safetensors", None, 0.5, (1.0, 0.5)),
    ],
)
def test_factors_follow_from_the_source(
    source: str, scale: float | None, decoder_scale: float | None, scales: tuple[Any, Any]
) -> None:
    spec = DataSpec(source=source, scale=scale, decoder_scale=decoder_scale)
    assert (spec.scale, spec.decoder_scale) == scales
    assert spec.scales == (scales[0], scales[0] if scales[1] is None else scales[1])
    tars = DataSpec(source="shards", scale=0.5, decoder_scale=0.5, normalise=True)
    assert tars.decoder_scale == 0.5  # which a scale of normalised channels does not say


def test_spec_decides_normalisation_before_its_source() -> None:
    for source, usual in (("safetensors", True), ("latents", False)):
        said = [DataSpec(source=source, normalise=n).normalised for n in (None, True, False)]
        assert said == [usual, True, False]


@pytest.mark.parametrize(
    ("source", "said", "counts"),
    [
        ("latents", {"flips": True, "posterior": "sampled", "normalise": False}, False),
        ("safetensors", {"posterior": "mean", "normalise": True}, False),
        ("shards", {"flips": False, "posterior": "mean", "normalise": False}, False),
        ("folder", {"flips": False, "normalise": False}, False),
        ("images", {"flips": False, "posterior": "mean", "normalise": True}, False),
        ("images", {"decoder_range": "unit"}, False),
        ("fashion16", {"flips": False, "normalise": True, "scale": 2.0}, False),
        ("latents", {"flips": False}, True),
        ("safetensors", {"normalise": False}, True),
        ("shards", {"normalise": True}, True),
        ("folder", {"posterior": "mean"}, True),
        ("images", {"scale": 2.0}, True),
        ("latents", {"decoder_range": "unit"}, True),
    ],
)
def test_options_count_where_a_source_has_them(
    source: str, said: dict[str, Any], counts: bool
) -> None:
    plain, spec = DataSpec(source=source), DataSpec(source=source, **said)
    assert (signature(spec) != signature(plain)) == (spec != plain) == counts
