"""The factors of latents follow from what a source holds; images have no factor of a decoder."""

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
        ("shards", 0.5, 0.5, (0.5, None)),
        ("folder", None, 0.5, (0.5, None)),
        ("images", None, 0.5, (1.0, None)),
        ("safetensors", None, 0.5, (1.0, 0.5)),
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


def test_what_a_spec_says_comes_before_what_its_source_holds() -> None:
    spec = DataSpec(source="shards", decoder_scale=0.5)
    assert (spec.scale, spec.decoder_scale, spec.scales) == (1.0, 0.5, (1.0, 0.5))
    assert DataSpec(source="latents", scale=0.5).scales == (0.5, 0.5)
    assert DataSpec().scales == (1.0, 1.0)
    tars = DataSpec(source="shards", scale=0.5, decoder_scale=0.5, normalise=True)
    assert tars.decoder_scale == 0.5  # which a scale of normalised channels does not say
    given = [
        (source, said) for source in ("safetensors", "latents") for said in (None, True, False)
    ]
    assert [DataSpec(source=source, normalise=said).normalised for source, said in given] == [
        True, True, False, False, True, False
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "said", "counts"),
    [
        ("latents", {"flips": True, "posterior": "sampled", "normalise": False}, False),
        ("safetensors", {"posterior": "mean", "normalise": True}, False),
        ("shards", {"flips": False, "posterior": "mean", "normalise": False}, False),
        ("folder", {"flips": False, "normalise": False}, False),
        ("images", {"flips": False, "posterior": "mean", "normalise": True}, False),
        ("fashion16", {"flips": False, "normalise": True, "scale": 2.0}, False),
        ("latents", {"flips": False}, True),
        ("latents", {"posterior": "mean"}, True),
        ("safetensors", {"normalise": False}, True),
        ("shards", {"normalise": True}, True),
        ("folder", {"posterior": "mean"}, True),
        ("images", {"scale": 2.0}, True),
        *((s, {"decoder_range": "unit"}, True) for s in ("latents", "folder", "safetensors")),
        ("images", {"decoder_range": "unit"}, False),
    ],
)
def test_what_changes_no_sample_is_no_part_of_the_data(
    source: str, said: dict[str, Any], counts: bool
) -> None:
    plain, spec = DataSpec(source=source), DataSpec(source=source, **said)
    assert (signature(spec) != signature(plain)) == (spec != plain) == counts
