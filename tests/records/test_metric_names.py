"""Every metric says whether it is quality, cost or neither, under all the names it goes by."""

from __future__ import annotations

import pytest

from tread_lab.records import metric_names
from tread_lab.specs import RunSpec, decode
from tread_lab.specs.evaluation import METRICS

NATURES = {
    "heldout/loss": ("quality", 1),
    "gap/heldout": ("quality", 1),
    "gap/train": ("neither", 0),
    "gap/route": ("neither", 0),
    "heldout/loss_routed": ("neither", 0),
    "similarity/adjacent": ("neither", 0),
    "fid@10k": ("quality", 1),
    "delta/fd[fashion16-v1]@1k": ("quality", 1),
    "fd[fashion16-v1]@1k w=2": ("quality", 1),
    "fd:fashion16-v1:1k": ("quality", 1),
    "precision[fashion16-v1]@1k": ("quality", -1),
    "is:50k": ("quality", -1),
    "cost/train_flops": ("cost", 1),
    "cost/sample_flops w=2": ("cost", 1),
    "cost/mfu": ("cost", -1),
    "throughput/images_per_s": ("cost", -1),
    "FID@10k": ("quality", 1),
    "delta/IS@10k w=2": ("quality", -1),
    "sharpness@1k": ("neither", 0),
    "precise@1k": ("neither", 0),
}


@pytest.mark.parametrize("name", NATURES)
def test_a_column_has_the_nature_of_its_metric(name: str) -> None:
    kind = metric_names.metric_kind(name)
    assert (kind.nature, kind.sign) == NATURES[name]


def test_every_measure_of_samples_has_an_entry() -> None:
    assert set(METRICS) <= metric_names.METRIC_KINDS.keys()


def test_every_name_of_a_metric_has_an_entry() -> None:
    declared = {
        value
        for name, value in vars(metric_names).items()
        if name.isupper() and isinstance(value, str)
    }
    assert declared <= metric_names.METRIC_KINDS.keys()


def test_of_several_routes_the_first_is_told_and_the_length_of_all() -> None:
    routes = [{"start": 0, "end": 1, "rate": 0.25}, {"start": 4, "end": 8, "rate": 0.5}]
    spec = decode(RunSpec, {"model": {"depth": 12, "width": 16, "heads": 2}, "routes": routes})
    found = metric_names.parameters(spec)
    assert (found["start"], found["end"], found["rate"], found["length"]) == (0, 1, 0.25, 7)
    same = {"model": {"depth": 12, "width": 16, "heads": 2}, "routes": ["0->1", "4->8"]}
    assert metric_names.parameters(decode(RunSpec, same))["route"] == "0->1 + 4->8"


def test_what_is_compared_how_and_under_which_label() -> None:
    kinds = metric_names.METRIC_KINDS
    others = {name: kind.compared for name, kind in kinds.items() if kind.compared != "difference"}
    assert others == {
        "heldout/loss_routed": "value", "gap/heldout": "gap", "gap/train": "gap",
        "gap/route": "gap",
    }  # fmt: skip
    assert {name: kind.unit for name, kind in kinds.items() if kind.unit} == {
        "throughput/images_per_s": "images/s", "throughput/step_seconds": "s",
        "cost/train_flops": "FLOP", "cost/family_flops": "FLOP", "cost/sample_flops": "FLOP",
        "cost/train_seconds": "s", "cost/train_images": "images", "cost/device_hours": "h",
        "cost/peak_memory_bytes": "byte", "energy/joules": "J", "power/watts": "W",
    }  # fmt: skip
    assert kinds["gap/heldout"].label == "\u0394 held-out loss"
    assert {name for name, kind in kinds.items() if kind.better == "higher"} == {
        "is", "is_shuffled", "precision", "recall", "throughput/images_per_s", "cost/mfu",
        "gpu/utilisation",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "extractor", "heldout", "name"),
    [
        ("fid", "inception", False, "fid@10k"),
        ("fid", "inception", True, "fid[heldout]@10k"),
        ("is", "inception", True, "is@10k"),
        ("fd", "fashion16-v1", True, "fd[fashion16-v1]@10k"),
        ("fd_dinov2", "dinov2-large", False, "fd_dinov2@10k"),
        ("fd_dinov2", "dinov2-large", True, "fd_dinov2[heldout]@10k"),
        ("kid", "dinov2", True, "kid[dinov2,heldout]@10k"),
        ("kid", "dinov2", False, "kid[dinov2]@10k"),
    ],
)
def test_what_departs_from_the_published_metric_is_in_its_name(
    metric: str, extractor: str, heldout: bool, name: str
) -> None:
    assert metric_names.sample_metric(metric, extractor, 10_000, heldout=heldout) == name


def test_older_names_of_distances_say_what_they_were_compared_with() -> None:
    metrics = {"fid@10k": 1.0, "is@10k": 2.0, "heldout/loss": 3.0, "fid": 4.0}
    assert metric_names.heldout_named(metrics) == {
        "fid[heldout]@10k": 1.0, "is@10k": 2.0, "heldout/loss": 3.0, "fid": 4.0
    }  # fmt: skip


def test_a_metric_of_which_no_value_is_better_sorts_from_its_least() -> None:
    names = ["gap/route", "heldout/loss", "is@1k", "unknown"]
    assert [metric_names.lower_is_better(name) for name in names] == [True, True, False, True]


def test_parameters_are_flat_and_what_is_usual_is_empty() -> None:
    model = {"depth": 12, "width": 16, "heads": 2}
    dense = decode(RunSpec, {"model": model, "precision": "fp32", "seed": 3})
    assert metric_names.parameters(dense) == {
        "model": "DiT-12x16/2", "route": "dense", "start": "", "end": "",
        "length": 0, "rate": 0.0, "bypass": "", "loss": "", "starts_from": "",
        "process": "edm", "precision": "fp32", "fp32_block": "off", "seed": 3,
    }  # fmt: skip
    routed = {"model": model, "routes": [{"start": 2, "end": 8, "rate": 0.25}]}
    more = {"loss": "both", "repa": {"block": 1}, "bypass": "sprint", "process": "flow"}
    child = {
        **routed,
        **more,
        "init_from": {"run": {**routed, "bypass": "sprint", "process": "flow"}},
    }
    found = metric_names.parameters(decode(RunSpec, child))
    assert (found["start"], found["end"], found["rate"]) == (2, 8, 0.25)
    assert (found["bypass"], found["loss"]) == ("sprint", "both + repa 0.5 at 1")
    assert len(str(found["starts_from"])) == 16
    file = {"model": model, "init_from": {"file": "x.pt", "digest": "abcd"}}
    assert metric_names.parameters(decode(RunSpec, file))["starts_from"] == "file abcd"


def test_what_each_metric_of_images_needs() -> None:
    needs = {
        name: (m.features, m.layer, m.keeps, m.fewest, m.compares)
        for name, m in METRICS.built_in.items()
    }
    assert needs == {
        "fd": ("own", "pool", "moments", 100, True),
        "fd_dinov2": ("dinov2", "pool", "moments", 100, True),
        "fid": ("inception", "pool", "moments", 100, True),
        "sfid": ("inception", "spatial", "moments", 100, True),
        "fid_inf": ("inception", "pool", "eighths", 20_000, True),
        "fid_inf_error": ("inception", "pool", "eighths", 20_000, True),
        "kid": ("any", "pool", "features", 100, True),
        "is": ("inception", "logits", "moments", 100, False),
        "is_shuffled": ("inception", "logits", "features", 100, False),
        "precision": ("any", "pool", "features", 100, True),
        "recall": ("any", "pool", "features", 100, True),
    }


def test_what_axes_call_each_measure_of_a_run() -> None:
    labels = {name: kind.label for name, kind in metric_names.METRIC_KINDS.items()}
    own = {name: label for name, label in labels.items() if "/" in name}
    assert own == {
        "train/loss": "training loss", "train/lr": "", "train/gradient_norm": "",
        "train/overflows": "", "heldout/loss": "held-out loss",
        "heldout/loss_routed": "held-out loss, routed", "gap/heldout": "\u0394 held-out loss",
        "gap/train": "\u0394 held-out loss, routed", "gap/route": "routed less dense loss",
        "similarity/adjacent": "similarity of neighbouring blocks",
        "train/images_per_s": "images per second", "throughput/images_per_s": "images per second",
        "throughput/step_seconds": "seconds a step", "cost/train_flops": "training FLOPs",
        "cost/family_flops": "training FLOPs with parents", "cost/sample_flops": "FLOPs an image",
        "cost/train_seconds": "training seconds", "cost/train_images": "training images",
        "cost/device_hours": "device-hours", "cost/mfu": "MFU",
        "cost/peak_memory_bytes": "peak memory", "energy/joules": "energy of training",
        "power/watts": "mean power", "gpu/utilisation": "GPU use",
    }  # fmt: skip
