"""Claims about signatures: what decides the result, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tread_lab.config.load import load_experiment
from tread_lab.specs import DataSpec, RunSpec, decode, signature
from tread_lab.specs.decode import added, encode
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
    assert signature(spec) == signature(tree) == sign() == "a13c85969f3c80f0"
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


@dataclass(frozen=True)
class Old:
    lr: float = 0.1


@dataclass(frozen=True)
class New:
    lr: float = 0.1
    clip: float = added(0.0)


def test_an_added_field_keeps_old_names_at_its_default_alone() -> None:
    assert signature(New()) == signature(Old()) and encode(New()) == {"lr": 0.1}
    assert signature(New(clip=1.0)) != signature(Old())
    assert decode(New, encode(New(clip=1.0))) == New(clip=1.0)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "9f19b73bb3a88673"),  # packed arrays: as ever
        (["data.scale=0.18215"], "9f19b73bb3a88673"),
        (["data.deviation=0.9"], "9f19b73bb3a88673"),
        (["data.source=shards", "data.scale=0.18215"], "0083b0a2242b3728"),  # scaled twice: old
        (["data.source=shards"], "0c7b7c0eeda5f70a"),  # tars as they are: new
    ],
)
def test_runs_keep_their_names_where_the_network_sees_the_same(
    overrides: list[str], name: str
) -> None:
    found = load_experiment("s2_imagenet256", overrides)
    assert signature(decode(RunSpec, found.run)) == name


def test_a_record_of_tars_scaled_twice_reads_as_what_it_was() -> None:
    old = {"source": "shards", "channels": 4, "size": 32, "classes": 1000, "scale": 0.18215}
    assert decode(DataSpec, old).scales == (0.18215, 0.18215)
    assert encode(decode(DataSpec, old)) == {**old, "path": None}
    assert decode(DataSpec, {**old, "scale": 1.0}).scales == (1.0, 1.0)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"init_from": {"run": BASE}}, "dc73d5ee72840fbc"),
        ({"init_from": {"run": BASE, "weights": "model"}}, "f4544a286a0392a6"),
        ({"init_from": {"file": "/a.pt", "digest": "abcd"}}, "74f65562fa18fb6f"),
        (
            {
                "process": "flow",
                "init_from": {"file": "/a.pt", "digest": "abcd", "published_as": "sit"},
            },
            "fd8e139bf1593778",
        ),
        ({"repa": {"block": 3, "path": "x"}, "captions": {"path": "y"}}, "d1a492f4532bcfd8"),
    ],
)
def test_runs_with_a_start_or_an_encoder_have_the_names_they_always_had(
    fields: dict, name: str
) -> None:
    spec = decode(RunSpec, {**BASE, **fields})
    assert signature(spec) == signature(encode(spec)) == name
