"""Defaults and limits of all specs as numbers: recorded runs rest on them."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.four_sweeps import outcome, outcomes, same_as_stored
from tests.frozen import not_frozen
from tread_lab import specs
from tread_lab.specs import (
    DataSpec,
    DDPMSpec,
    EDMSpec,
    FlowSpec,
    GuidanceSpec,
    HeldoutSpec,
    ModelSpec,
    RunSpec,
    SamplerSpec,
    SamplesSpec,
    TrainSpec,
    UserError,
    decode,
)
from tread_lab.specs.data import SD_DEVIATION, SD_SCALE
from tread_lab.specs.evaluation import SimilaritySpec
from tread_lab.specs.evaluation_text import count_label
from tread_lab.specs.guidance import BranchSpec, RateSpec
from tread_lab.specs.guidance import in_short as in_few_words
from tread_lab.specs.metrics import METRICS, ReferenceSpec
from tread_lab.specs.recipe import (
    DDPM_LEVELS,
    EmaSpec,
    EnsembleLoss,
    ExecutionSpec,
    PlainLoss,
    outputs,
)
from tread_lab.specs.routes import ReEntrySpec, RouteBypass
from tread_lab.specs.sweep import SearchSpec, StopEarlySpec, SweepSpec
from tread_lab.systems.maskdit.spec import MaskBypass
from tread_lab.systems.mdt.spec import BothLoss, MdtBypass
from tread_lab.systems.repa.spec import ENCODERS, RepaSpec
from tread_lab.systems.sd_dit.spec import DiscriminationLoss
from tread_lab.systems.sprint.spec import SprintBypass
from tread_lab.systems.text_to_image.spec import CaptionSpec

STORED = Path(__file__).parent / "stored"


def of_nothing() -> tuple[Any, ...]:
    """Each spec as it is made where no more is said than must be."""
    return (
        *(SweepSpec(experiment="tiny"), SearchSpec(), StopEarlySpec()),
        decode(RunSpec, {"model": "DiT-S/2", "routes": ["2->8"]}),
        *(FlowSpec(), DDPMSpec(), RouteBypass(), MaskBypass(), MdtBypass(), SprintBypass()),
        *(PlainLoss(), EnsembleLoss(), BothLoss(), DiscriminationLoss(), RepaSpec(), CaptionSpec()),
        *(HeldoutSpec(), SimilaritySpec(), SamplesSpec(metrics=("fd",), count=1000), DataSpec()),
        *(EDMSpec(), TrainSpec(), EmaSpec(), ExecutionSpec(), SamplerSpec(), RateSpec()),
        *(GuidanceSpec(), BranchSpec(), ReEntrySpec(), decode(ModelSpec, "DiT-S/2")),
    )


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


TRIED = {"int": (-1, 0, 1, 2), "float": (-1.0, -0.01, 0.0, 0.5, 0.99, 1.0, 1.01, 1.5)}
TRIED_TOGETHER: tuple[tuple[Any, dict[str, Any]], ...] = (
    *((MaskBypass, {"width": w, "heads": h}) for w, h in ((510, 2), (36, 8), (36, 9))),
    (ReEntrySpec, {"x_D_last": False}),
    *((BranchSpec, {"path": "dropped", "rate": RateSpec(first=x, last=x)}) for x in (0.0, 0.5)),
    (GuidanceSpec, {"weight": 2.0, "interval": (0.5, 0.5)}),
    (SamplerSpec, {"sigma_min": 80.0}),
    *((SamplerSpec, {"solver": "sde", "last_step": x}) for x in (0.0, 0.99, 1.0)),
    *((ExecutionSpec, {"keep_steps": steps}) for steps in ((1,), (5, 0))),
    *((TrainSpec, {"betas": x}) for x in ((0.0, 0.0), (0.9, 1.0), (-0.1, 0.9))),
    *((ReferenceSpec, {"name": x}) for x in ("imagenet-256_v1.0", "heldout", "a b")),
)


def with_value(spec: Any, name: str, value: Any) -> Any:
    """What a field stands at that is given a value."""
    return getattr(replace(spec, **{name: value}), name)


def with_values(cls: Any, **values: Any) -> list[Any]:
    made = cls(**values)
    return [getattr(made, name) for name in values]


def test_what_numbers_may_be_and_what_is_said_of_others() -> None:
    """Of each number of each spec, and of some that go together."""
    lines = list[str]()
    for spec, field in [(own, field) for own in of_nothing() for field in fields(own)]:
        kinds = [kind for kind in TRIED if kind in field.type.split(" | ")]
        if values := [value for kind in kinds for value in TRIED[kind]]:
            said = outcomes(partial(with_value, spec, field.name), values)
            lines.append(f"{type(spec).__name__}.{field.name}: {said}")
    lines += [
        f"{cls.__name__} of {own}: {outcome(with_values, cls, **own)}"
        for cls, own in TRIED_TOGETHER
    ]
    same_as_stored(STORED / "limits.txt", "\n".join(lines) + "\n")


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


def test_few_images_are_enough_for_some_metrics_alone() -> None:
    fewest = {name: metric.fewest for name, metric in METRICS.built_in.items()}
    for name, count in fewest.items():
        SamplesSpec(metrics=(name,), count=count)
        if count > 1:
            with pytest.raises(UserError, match=f"images are too few for {name}"):
                SamplesSpec(metrics=(name,), count=count - 1)
    assert count_label(10_000) == "10k" and count_label(1500) == "1500"


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
