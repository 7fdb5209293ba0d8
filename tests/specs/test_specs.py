"""Defaults and limits of all specs as numbers: recorded runs rest on them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frozen import not_frozen
from tread_lab import specs
from tread_lab.specs import (
    DataSpec,
    DDPMSpec,
    EDMSpec,
    FlowSpec,
    GuidanceSpec,
    HeldoutSpec,
    RunSpec,
    SamplerSpec,
    SamplesSpec,
    TrainSpec,
    UserError,
    decode,
    encode,
    signature,
)
from tread_lab.specs.data import SD_DEVIATION, SD_SCALE
from tread_lab.specs.evaluation import SimilaritySpec
from tread_lab.specs.evaluation_text import count_label
from tread_lab.specs.guidance import BranchSpec, RateSpec
from tread_lab.specs.guidance import in_short as in_few_words
from tread_lab.specs.metrics import METRICS, ReferenceSpec
from tread_lab.specs.model import COUNTED, SIZES
from tread_lab.specs.recipe import (
    DDPM_LEVELS,
    EmaSpec,
    EnsembleLoss,
    ExecutionSpec,
    PlainLoss,
    outputs,
)
from tread_lab.specs.routes import ReEntrySpec, RouteBypass
from tread_lab.specs.sweep import BudgetSpec, SearchSpec, StopEarlySpec, SweepSpec
from tread_lab.systems.maskdit.spec import MaskBypass
from tread_lab.systems.mdt.spec import BothLoss, MdtBypass
from tread_lab.systems.repa.spec import ENCODERS, RepaSpec
from tread_lab.systems.sd_dit.spec import DiscriminationLoss
from tread_lab.systems.sprint.spec import SprintBypass


def test_the_defaults_of_a_sweep_and_of_its_parts() -> None:
    assert encode(SweepSpec(experiment="tiny")) == {
        "experiment": "tiny", "question": "", "fixed": {}, "baseline": {"routes": []},
        "variants": {}, "axes": {}, "trials": [], "where": [], "seeds": [0], "evaluate": None,
        "sampler_axes": {}, "search": None, "budget": None, "stop_early": None,
    }  # fmt: skip
    assert encode(SearchSpec()) == {
        "sampler": "tpe", "trials": 20, "objectives": [], "seed": 0, "startup": 8, "parallel": 2,
        "in_order": True,
    }  # fmt: skip
    assert encode(StopEarlySpec()) == {"kind": "asha", "grace": None, "reduction": 3, "least": 3}
    assert encode(BudgetSpec()) == {"flops": None, "hours": None, "trials": None}


@pytest.mark.parametrize(
    ("spec", "tree"),
    [
        (MaskBypass(), {"kind": "mask", "depth": 8, "width": 512, "heads": 16, "adapter": "zero"}),
        (MdtBypass(), {"kind": "mdt"}),
        (SprintBypass(), {"kind": "sprint", "path_drop": 0.1, "mask_token": "learned"}),
        (
            EnsembleLoss(),
            {"kind": "ensemble", "form": "equation", "weight": 0.1, "noise_weight": "dsm"},
        ),
        (BothLoss(), {"kind": "both", "weight": 1.0}),
        (
            DiscriminationLoss(),
            {
                "kind": "discrimination", "weight": 1.0, "level": 0.002, "prototypes": 8192,
                "hidden": 2048, "bottleneck": 256, "momentum": 0.996, "center_momentum": 0.9,
                "student_temperature": 0.1, "teacher_temperature": 0.04,
            },
        ),
        (FlowSpec(), {"kind": "flow", "time": "logit_normal"}),
        (DDPMSpec(), {"kind": "ddpm", "learned_variance": True}),
        (
            RepaSpec(),
            {
                "encoder": "dinov2-base", "target": "image", "block": None, "weight": 0.5,
                "hidden": 2048, "path": None,
            },
        ),
    ],
)  # fmt: skip
def test_the_defaults_of_bypasses_losses_and_processes(spec: Any, tree: dict[str, Any]) -> None:
    assert encode(spec) == tree


def test_a_run_has_the_name_that_it_always_had() -> None:
    assert (
        signature(decode(RunSpec, {"model": "DiT-S/2", "routes": ["2->8"]})) == "a13c85969f3c80f0"
    )
    assert signature(SamplesSpec(metrics=("fd",), count=1000)) == "9352b2d994677230"
    assert signature(HeldoutSpec()) == "62fa427c5a99abb1"
    assert signature(SimilaritySpec()) == "74d63acfd3d17a09"
    execution = {"micro_batch": None, "log_every": 100, "checkpoint_every": 5000, "workers": 0}
    assert encode(ExecutionSpec()) == {**execution, "keep_checkpoints": 2, "keep_steps": []}


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


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (MaskBypass, {"width": 510, "heads": 2}),
        (MaskBypass, {"width": 36, "heads": 8}),
        (MaskBypass, {"depth": 0}),
        (SprintBypass, {"path_drop": 1.0}),
        (SprintBypass, {"path_drop": -0.1}),
        (SprintBypass, {"dense_path_drop": 1.0}),
        (ReEntrySpec, {"x_D_last": False}),
        (FlowSpec, {"direction": -0.1}),
        (BothLoss, {"weight": 0.0}),
        (DiscriminationLoss, {"momentum": 1.1}),
        (DiscriminationLoss, {"center_momentum": -0.1}),
        (DiscriminationLoss, {"teacher_temperature": 0.0}),
        (RepaSpec, {"weight": 0.0}),
        (RepaSpec, {"hidden": 0}),
        (RateSpec, {"last": -0.1}),
        (BranchSpec, {"path": "dropped", "rate": RateSpec(first=0.5, last=0.5)}),
        (SamplerSpec, {"sigma_min": 0.0}),
        (SamplerSpec, {"sigma_min": 80.0}),
        (SamplerSpec, {"steps": 0}),
        (SamplerSpec, {"solver": "sde", "last_step": 1.0}),
        (HeldoutSpec, {"images": 1}),
        (HeldoutSpec, {"levels": 0}),
        (SimilaritySpec, {"images": 0}),
        (SimilaritySpec, {"levels": 0}),
        (SamplesSpec, {"count": 0}),
        (SamplesSpec, {"metrics": ("fid_inf",), "count": 19_999}),
        (ExecutionSpec, {"keep_steps": (5, 0)}),
        (TrainSpec, {"label_drop": 1.01}),
        (TrainSpec, {"label_drop": -0.01}),
        (TrainSpec, {"betas": (0.9, 1.0)}),
        (TrainSpec, {"betas": (-0.1, 0.9)}),
        (TrainSpec, {"weight_decay": -0.1}),
        (TrainSpec, {"steps": -1}),
        (TrainSpec, {"warmup": -1}),
        (TrainSpec, {"warmup": 1.5}),
        (EmaSpec, {"decay": 1.0}),
        (EmaSpec, {"decay": -0.1}),
        (EmaSpec, {"halflife": 0.0}),
        (ExecutionSpec, {"micro_batch": 0}),
        (ExecutionSpec, {"keep_checkpoints": 0}),
        (SearchSpec, {"parallel": 0}),
        (SearchSpec, {"sampler": "nsgaii", "objectives": ("a",)}),
        (StopEarlySpec, {"reduction": 1}),
        (StopEarlySpec, {"least": 0}),
        (StopEarlySpec, {"grace": 0}),
        (ReferenceSpec, {"name": "heldout"}),
        (ReferenceSpec, {"name": "a b"}),
        *[(DataSpec, {n: 0}) for n in ("channels", "size", "classes", "scale", "decoder_scale")],
        (DataSpec, {"deviation": 0}),
        *[(EDMSpec, {n: 0.0}) for n in ("p_std", "sigma_data")],
        *[(TrainSpec, {n: 0}) for n in ("batch", "lr", "eps", "clip")],
        *[(ExecutionSpec, {n: 0}) for n in ("log_every", "checkpoint_every")],
        *[(DiscriminationLoss, {n: 0}) for n in ("weight", "level", "prototypes", "hidden")],
        *[(DiscriminationLoss, {n: 0}) for n in ("bottleneck", "student_temperature")],
        *[(BudgetSpec, {n: 0}) for n in ("flops", "hours", "trials")],
    ],
)
def test_a_value_beyond_its_limit_is_refused(spec: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        spec(**fields)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (MaskBypass, {"width": 36, "heads": 9}),
        (SprintBypass, {"path_drop": 0.0, "dense_path_drop": 0.99}),
        (FlowSpec, {"direction": 0.0}),
        (EnsembleLoss, {"weight": 0.0}),
        (DiscriminationLoss, {"momentum": 1.0, "center_momentum": 0.0}),
        (RepaSpec, {"hidden": 1}),
        (RateSpec, {"first": 0.0, "last": 0.99}),
        (BranchSpec, {"path": "dropped"}),
        (GuidanceSpec, {"weight": 2.0, "interval": (0.5, 0.5)}),
        (SamplerSpec, {"steps": 1, "solver": "sde", "last_step": 0.99}),
        (HeldoutSpec, {"images": 2, "levels": 1}),
        (SimilaritySpec, {"images": 1, "levels": 1}),
        (SamplesSpec, {"count": 1}),
        (SamplesSpec, {"metrics": ("fid_inf",), "count": 20_000}),
        (ExecutionSpec, {"keep_steps": (1,)}),
        (TrainSpec, {"label_drop": 1.0, "betas": (0.0, 0.0), "steps": 0}),
        (TrainSpec, {"label_drop": 0.0}),
        (EmaSpec, {"decay": 0.0}),
        (SearchSpec, {"trials": 1, "startup": 1, "parallel": 1}),
        (SearchSpec, {"sampler": "nsgaii", "objectives": ("a", "b")}),
        (StopEarlySpec, {"reduction": 2, "least": 1, "grace": 1}),
        (ReferenceSpec, {"name": "imagenet-256_v1.0"}),
    ],
)
def test_a_value_at_its_limit_is_taken(spec: Any, fields: dict[str, Any]) -> None:
    made = spec(**fields)
    assert all(getattr(made, name) == value for name, value in fields.items())


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


def test_the_tables_of_models_and_data_are_those_of_the_papers() -> None:
    assert SIZES == {
        "S": (12, 384, 6), "B": (12, 768, 12), "L": (24, 1024, 16), "XL": (28, 1152, 16)
    }  # fmt: skip
    assert COUNTED == {"RWKV-210M": (12, 952), "Mamba-111M": (12, 960)}
    assert ENCODERS == {
        "fashion16-v1": 64, "dinov2-small": 384, "dinov2-base": 768, "dinov2-large": 1024,
        "dinov2-giant": 1536,
    }  # fmt: skip
    assert (DDPM_LEVELS, SD_SCALE, SD_DEVIATION) == (1000, 0.18215, 0.93)


def test_every_dataclass_of_the_specs_is_frozen() -> None:
    assert not_frozen(specs) == set()
