"""Claims about signatures: what decides the result, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tread_lab.config import DataSpec, RunSpec, TrainSpec, decode, encode, signature
from tread_lab.config.metrics import ReferenceSpec

BASE = {"model": "DiT-S/2", "routes": ["2->8"]}


def sign(**changes: object) -> str:
    return signature(decode(RunSpec, {**BASE, **changes}))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"routes": [{"start": 2, "end": 8, "rate": 0.25}]},
        {"train": {"lr": 2e-4}},
        {"fp32_block": "j"},
        {"bypass": "sprint"},
        {"bypass": {"re_entry": "v1_code"}},
        {"process": "flow"},
        {"loss": "ensemble"},
        {"routes_until": 50},
        {"routes_from": 50},
        {"repa": {"block": 3}},
        {"repa": {}},
        {"captions": {}},
        {"data": {"digest": "1"}},
        {"init_from": {"run": BASE}},
        {"init_from": {"run": {**BASE, "seed": 1}}},
        {"init_from": {"run": BASE, "weights": "model"}},
        {"init_from": {"file": "a.pt", "digest": "1"}},
        {"process": "flow", "init_from": {"file": "a.pt", "published_as": "sit"}},
    ],
)
def test_what_changes_the_science_changes_the_name(change: dict[str, Any]) -> None:
    spec = decode(RunSpec, {**BASE, **change})
    assert signature(spec) != sign() and decode(RunSpec, encode(spec)) == spec


ENSEMBLE = {"kind": "ensemble", "weight": 0}
MOVED = {"process": "flow", "loss": {"kind": "ensemble"}}
FILE = {"init_from": {"file": "a", "digest": "1"}}


@pytest.mark.parametrize(
    ("said", "effective"),
    [
        ({"execution": {"workers": 4, "log_every": 7, "micro_batch": 3}}, {}),
        ({"data": {"path": "elsewhere", "deviation": 0.5}}, {}),
        ({"routes": [{"start": 2, "end": "B-4", "rate": 0.5}]}, {}),
        ({"model": {"depth": 12, "width": 384, "heads": 6, "patch": 2}}, {}),
        ({"train": {"weight_decay": -0.0}}, {}),
        ({"loss": {**ENSEMBLE, "noise_weight": "both"}}, {"loss": ENSEMBLE}),
        ({**MOVED, "loss": {"kind": "ensemble", "noise_weight": "both"}}, MOVED),
        ({"repa": {"target": "decoded", "path": "x"}}, {"repa": {}}),
        ({"captions": {"path": "x"}}, {"captions": {}}),
        ({"init_from": {"file": "b", "digest": "1", "unlabelled": True}}, FILE),
        (
            {"init_from": {"run": {**BASE, "execution": {"workers": 2}}}},
            {"init_from": {"run": BASE}},
        ),
    ],
)
def test_what_does_not_keeps_it(said: dict[str, Any], effective: dict[str, Any]) -> None:
    assert sign(**said) == sign(**effective)


def test_a_later_field_at_its_default_keeps_the_name() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(TrainSpec):
        optimizer: str = "adamw"

    assert signature(Later(lr=0.5)) == signature(TrainSpec(lr=0.5))
    assert signature(Later(optimizer="muon")) != signature(TrainSpec())


def test_a_kind_is_signed_at_its_default() -> None:
    kinds = ({}, {"process": "flow"}, {"process": "ddpm"}, {"bypass": "sprint"}, {"loss": "both"})
    assert len({sign(**kind) for kind in kinds}) == len(kinds)


def test_folders_are_not_signed() -> None:
    assert signature(ReferenceSpec(name="a", path="x")) == signature(ReferenceSpec(name="a"))
    spec = decode(RunSpec, {**BASE, "data": {"path": "x"}})
    assert signature(spec.data) == signature(DataSpec()) and signature(spec) == sign()
