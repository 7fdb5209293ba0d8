"""Claims about captions in a spec: the encoders' widths, how many tokens, and what is signed."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import RunSpec, UserError, decode, signature


def test_captions_are_counted_and_signed() -> None:
    base = {"model": "DiT-S/2", "routes": ["2->8"]}
    plain = decode(RunSpec, base)
    here, there = (decode(RunSpec, {**base, "captions": {"path": p}}) for p in ("a", "b"))
    assert (plain.text_tokens, here.text_tokens) == (0, 77)
    assert signature(here) == signature(there) != signature(plain)
    fewer = decode(RunSpec, {**base, "captions": {"tokens": 32}})
    assert signature(fewer) != signature(here) and fewer.network == here.network
    base_encoder = decode(RunSpec, {**base, "captions": "clip-base"})
    assert signature(base_encoder) != signature(here)
    assert base_encoder.network != here.network != plain.network


NO_PLACE = ("RWKV-4x16/2", "LightningDiT-4x16/2", "MDT-4x16/2")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"captions": {"encoder": "clip-lage"}}, "did you mean 'clip-large'"),
        ({"captions": {"tokens": 1}}, "tokens: must be in \\[2, 77\\], got 1"),
        ({"captions": {"tokens": 78}}, "tokens: must be in \\[2, 77\\], got 78"),
        *(({"model": m, "routes": []}, f"without scans.* got {m}") for m in NO_PLACE),
        ({"bypass": "sprint"}, "not be combined with bypass sprint"),
    ],
)
def test_what_cannot_see_a_text_is_refused(changes: dict[str, Any], says: str) -> None:
    tree = {"model": "DiT-S/2", "routes": ["2->8"], "captions": {"tokens": 2}}
    assert decode(RunSpec, tree) and decode(RunSpec, {**tree, "routes": [], "bypass": "sprint"})
    with pytest.raises(UserError, match=rf"^captions\b.*{says}"):
        decode(RunSpec, {**tree, **changes})
