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


CHANGES: tuple[dict[str, Any], ...] = (
    {"seed": 1},
    {"routes": [{"start": 2, "end": 8, "rate": 0.25}]},
    {"train": {"lr": 2e-4}},
    {"fp32_block": "j"},
    *({"bypass": bypass} for bypass in ("sprint", {"re_entry": "v1_code"})),
    *({"process": process} for process in ("flow", "ddpm")),
    *({"loss": loss} for loss in ("ensemble", "both")),
    {"routes_until": 50},
    {"routes_from": 50},
    *({"repa": repa} for repa in ({"block": 5}, {})),
    {"captions": {}},
    {"data": {"digest": "1"}},
    {"init_from": {"run": BASE}},
    {"init_from": {"run": {**BASE, "seed": 1}}},
    {"init_from": {"run": BASE, "weights": "model"}},
    {"init_from": {"file": "a.pt", "digest": "1"}},
    {"process": "flow", "init_from": {"file": "a.pt", "published_as": "sit"}},
)


def test_signature_follows_the_science() -> None:
    specs = [decode(RunSpec, {**BASE, **change}) for change in ({}, *CHANGES)]
    assert len({*map(signature, specs)}) == len(specs)
    assert [decode(RunSpec, encode(spec)) for spec in specs] == specs


ENSEMBLE = {"kind": "ensemble", "weight": 0}
MOVED = {"process": "flow", "loss": {"kind": "ensemble"}}
FILE = {"init_from": {"file": "a", "digest": "1"}}
ELSEWHERE = {"execution": {"workers": 2, "log_every": 7}, "data": {"path": "elsewhere"}}


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
        ({"init_from": {"run": {**BASE, **ELSEWHERE}}}, {"init_from": {"run": BASE}}),
    ],
)
def test_signature_ignores_execution(said: dict[str, Any], effective: dict[str, Any]) -> None:
    assert sign(**said) == sign(**effective)


def test_later_field_at_default_keeps_names() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(TrainSpec):
        optimizer: str = "adamw"

    assert signature(Later(lr=0.5)) == signature(TrainSpec(lr=0.5))
    assert signature(Later(optimizer="muon")) != signature(TrainSpec())
    assert signature(ReferenceSpec(name="a", path="x")) == signature(ReferenceSpec(name="a"))
    assert signature(DataSpec(path="x")) == signature(DataSpec())
