"""Claims about signatures: what decides the result, and nothing else."""

from __future__ import annotations

import pytest

from tread_lab.specs import RunSpec, decode, encode, signature
from tread_lab.specs.signature import settings_signature

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
        {"loss": "ensemble"},
        {"routes_until": 50},
        {"routes_from": 50},
        {"repa": {"block": 3}},
    ],
)
def test_what_changes_the_science_changes_the_name(change: dict) -> None:
    spec = decode(RunSpec, {**BASE, **change})
    assert signature(spec) != sign() and decode(RunSpec, encode(spec)) == spec


@pytest.mark.parametrize(
    "change",
    [
        {"execution": {"workers": 4, "log_every": 7, "micro_batch": 3}},
        {"data": {"path": "elsewhere"}},
        {"routes": [{"start": 2, "end": "B-4", "rate": 0.5}]},
        {"model": {"depth": 12, "width": 384, "heads": 6, "patch": 2}},
    ],
)
def test_what_does_not_keeps_it(change: dict) -> None:
    spec = decode(RunSpec, {**BASE, **change})
    signature(spec.data)  # a part that was signed alone leaves the name of its run
    tree = dict(reversed(encode(spec).items()))
    assert signature(spec) == signature(tree) == sign()
    assert len(signature([1, "a"])) == 16 and signature([1, "a"]) != signature(["a", 1])


ENSEMBLE = {"kind": "ensemble", "weight": 0}
MOVED = {"process": "flow", "loss": {"kind": "ensemble"}}


@pytest.mark.parametrize(
    ("said", "effective"),
    [
        ({"train": {"weight_decay": -0.0}}, {}),
        ({"loss": {**ENSEMBLE, "noise_weight": "both"}}, {"loss": ENSEMBLE}),
        ({**MOVED, "loss": {"kind": "ensemble", "noise_weight": "both"}}, MOVED),
        ({"repa": {"target": "decoded"}}, {"repa": {}}),
    ],
)
def test_what_is_said_without_effect_keeps_it_too(said: dict, effective: dict) -> None:
    assert sign(**said) == sign(**effective)


def test_seeds_of_a_cell_share_the_signature_of_its_settings_and_of_its_parents() -> None:
    def settings(seed: int, steps: int = 9, **parent: object) -> str:
        start = {"run": {**BASE, "seed": seed, **parent}}
        tree = {**BASE, "seed": seed, "init_from": start, "train": {"steps": steps}}
        spec = decode(RunSpec, tree)
        assert settings_signature(spec) == settings_signature(encode(spec))
        return settings_signature(spec)

    assert settings(0) == settings(1) != settings(0, train={"lr": 2e-4})
    assert settings(0) != settings(0, steps=8)


@pytest.mark.parametrize(
    "fields",
    [
        {"init_from": {"run": BASE, "weights": "model"}},
        {"process": "flow", "init_from": {"file": "/a.pt", "published_as": "sit"}},
        {"repa": {"block": 3, "path": "x"}, "captions": {"path": "y"}},
    ],
)
def test_a_tree_has_the_name_of_its_spec(fields: dict) -> None:
    spec = decode(RunSpec, {**BASE, **fields})
    assert signature(spec) == signature(encode(spec)) != sign()
