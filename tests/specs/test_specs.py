"""Defaults and limits of all specs as numbers: recorded runs rest on them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frozen import not_frozen
from tread_lab import specs
from tread_lab.specs import (
    DDPMSpec,
    FlowSpec,
    GuidanceSpec,
    decode,
)
from tread_lab.specs.data import SD_DEVIATION, SD_SCALE
from tread_lab.specs.guidance import RateSpec
from tread_lab.specs.guidance import in_short as in_few_words
from tread_lab.specs.metrics import ReferenceSpec
from tread_lab.specs.recipe import (
    DDPM_LEVELS,
    EnsembleLoss,
    PlainLoss,
    outputs,
)
from tread_lab.specs.routes import ReEntrySpec, RouteBypass
from tread_lab.systems.maskdit.spec import MaskBypass
from tread_lab.systems.mdt.spec import BothLoss, MdtBypass
from tread_lab.systems.repa.spec import ENCODERS, RepaSpec
from tread_lab.systems.sd_dit.spec import DiscriminationLoss
from tread_lab.systems.sprint.spec import SprintBypass


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (RouteBypass(), "route"),
        (decode(RouteBypass, {"re_entry": "v1_sum"}), "route v1_sum"),
        (decode(RouteBypass, {"re_entry": "v1_code"}), "route v1_code"),
        (ReEntrySpec(x_T=True, x_D_last=False), "x_T"),
        (MaskBypass(), "mask 8x512"),
        (MaskBypass(fill="entry"), "mask 8x512 entry"),
        (MdtBypass(), "mdt"),
        (SprintBypass(), "sprint"),
        (PlainLoss(), "plain"),
        (EnsembleLoss(), "equation 0.1"),
        (EnsembleLoss(form="code", weight=1.0), "code 1"),
        (BothLoss(), "both"),
        (BothLoss(weight=0.5), "both 0.5"),
        (DiscriminationLoss(), "discrimination"),
        (DiscriminationLoss(weight=2.0), "discrimination 2"),
        (RepaSpec(block=3), "repa 0.5 at 3"),
        (RateSpec(first=0.5, last=0.5), "0.5"),
        (RateSpec(first=0.6), "0.6->0"),
    ],
)
def test_what_a_part_is_called(spec: Any, text: str) -> None:
    assert str(spec) == text


def test_only_ddpm_with_learned_variance_has_twice_the_outputs() -> None:
    assert outputs(DDPMSpec()) == 2
    assert outputs(DDPMSpec(learned_variance=False)) == outputs(FlowSpec()) == 1


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("imagenet256", "imagenet256", None),
        ("/x/VIRTUAL_imagenet256_labeled.npz", "imagenet256", "/x/VIRTUAL_imagenet256_labeled.npz"),
        ("VIRTUAL_imagenet512.npz", "imagenet512", "VIRTUAL_imagenet512.npz"),
        ("x/coco.npz", "coco", "x/coco.npz"),
        ("x/coco", "coco", "x/coco"),
    ],
)
def test_a_reference_is_named_for_what_its_file_is(text: str, name: str, path: str | None) -> None:
    assert decode(ReferenceSpec, text) == ReferenceSpec(name=name, path=path)


def test_the_file_of_a_reference_has_its_own_or_the_published_name() -> None:
    assert ReferenceSpec(name="coco").files == ("coco.npz",)
    published = ("imagenet64.npz", "VIRTUAL_imagenet64_labeled.npz")
    assert ReferenceSpec(name="imagenet64").files == published


def test_guidance_in_few_words_leaves_out_what_is_usual() -> None:
    usual = {"w": 2.0, "method": "CFG", "interval": None, "channels": None, "routes": None}
    assert in_few_words(GuidanceSpec(weight=2.0)) == usual
    special = GuidanceSpec(weight=2.0, interval=(0.1, 1.0), channels="first3")
    assert in_few_words(special) == {**usual, "interval": (0.1, 1.0), "channels": "first3"}


def test_the_widths_of_encoders_and_the_factors_of_data_are_those_of_the_papers() -> None:
    assert ENCODERS == {
        "fashion16-v1": 64, "dinov2-small": 384, "dinov2-base": 768, "dinov2-large": 1024,
        "dinov2-giant": 1536,
    }  # fmt: skip
    assert (DDPM_LEVELS, SD_SCALE, SD_DEVIATION) == (1000, 0.18215, 0.93)


def test_every_dataclass_of_the_specs_is_frozen() -> None:
    assert not_frozen(specs) == set()
