"""Claims about captions in a spec: the encoders' widths, how many tokens, and what is signed."""

from __future__ import annotations

import pytest

from tread_lab.specs import RunSpec, UserError, decode, encode, signature
from tread_lab.systems.text_to_image.spec import LONGEST, TEXT_ENCODERS, CaptionSpec


def test_the_encoders_have_the_widths_of_their_papers_and_the_large_one_is_usual() -> None:
    assert TEXT_ENCODERS == {"clip-base": 512, "clip-large": 768, "clip-huge": 1024}
    assert encode(CaptionSpec()) == {"encoder": "clip-large", "tokens": 77, "path": None}
    assert decode(CaptionSpec, "clip-huge") == CaptionSpec(encoder="clip-huge")
    assert (CaptionSpec().width, CaptionSpec(encoder="clip-base").width) == (768, 512)
    assert str(CaptionSpec()) == "captions by clip-large"


@pytest.mark.parametrize(("tokens", "taken"), [(1, False), (2, True), (77, True), (78, False)])
def test_a_text_has_2_to_77_tokens(tokens: int, taken: bool) -> None:
    assert LONGEST == 77
    if taken:
        assert CaptionSpec(tokens=tokens).tokens == tokens
        return
    with pytest.raises(UserError, match=f"tokens: a CLIP takes 2 to 77 of a text, got {tokens}"):
        CaptionSpec(tokens=tokens)


def test_a_run_with_captions_counts_their_tokens_and_signs_all_but_the_path() -> None:
    base = {"model": "DiT-S/2", "routes": ["2->8"]}
    plain = decode(RunSpec, base)
    here, there = (decode(RunSpec, {**base, "captions": {"path": p}}) for p in ("a", "b"))
    assert (plain.text_tokens, here.text_tokens) == (0, 77)
    assert signature(here) == signature(there) != signature(plain)
    fewer = decode(RunSpec, {**base, "captions": {"tokens": 32}})
    assert signature(fewer) != signature(here) and fewer.network == here.network
    base_encoder = decode(RunSpec, {**base, "captions": "clip-base"})
    assert base_encoder.network != here.network != plain.network


def test_captions_go_with_attention_without_places_and_with_plain_routes() -> None:
    with pytest.raises(UserError, match=r"^captions: text tokens .* RWKV-S/2 has one of them"):
        decode(RunSpec, {"model": "RWKV-S/2", "captions": "clip-base"})
    masked = {"model": "DiT-S/2", "captions": "clip-base", "bypass": "sprint"}
    with pytest.raises(UserError, match="captions: bypass sprint makes image tokens"):
        decode(RunSpec, {**masked, "routes": ["2->8"]})
    assert decode(RunSpec, masked).captions == CaptionSpec(encoder="clip-base")
