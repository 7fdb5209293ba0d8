"""Claims about decoding: round trips, what a field may hold, and a line for each mistake."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frozen import not_frozen
from tread_lab import config
from tread_lab.config import (
    GuidanceSpec,
    ModelSpec,
    RunSpec,
    SamplerSpec,
    UserError,
    decode,
    encode,
    signature,
)

TRAIN = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.integers(1, 10**6),
        "lr": st.floats(1e-6, 1.0),
        "betas": st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)).map(list),
        "clip": st.none() | st.floats(0.1, 10.0),
        "ema": st.floats(0, 0.999) | st.fixed_dictionaries({"halflife": st.floats(0.01, 1.0)}),
    },
)
RUNS = st.fixed_dictionaries(
    {"model": st.sampled_from(["DiT-S/2", "DiT-12x32x4/2", "LightningDiT-S/1", "MDT-S/2"])},
    optional={
        "routes": st.sampled_from(
            [[], ["2->8"], ["2->B-4"], [{"start": 0, "end": 3, "rate": 0.2}]]
        ),
        "routes_from": st.integers(0, 50) | st.floats(0, 1),
        "bypass": st.sampled_from(["route", "sprint", {"re_entry": "v1_sum"}]),
        "process": st.sampled_from(["edm", "flow", "ddpm", {"kind": "edm", "p_mean": 0.0}]),
        "precision": st.sampled_from(["fp32", "tf32", "bf16", "fp16"]),
        "seed": st.integers(0, 10**6),
        "train": TRAIN,
    },
)


@settings(deadline=None, max_examples=50)
@given(RUNS)
def test_decode_inverts_encode(tree: dict[str, Any]) -> None:
    spec = decode(RunSpec, tree)
    again = decode(RunSpec, dict(reversed(encode(spec).items())))
    assert again == spec and signature(again) == signature(spec)
    child = decode(RunSpec, {**encode(spec), "init_from": {"run": encode(spec)}})
    assert child.ancestors[-1].network == spec.network and signature(child) != signature(spec)


def test_specs_are_frozen() -> None:
    assert not_frozen(config) == set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class First:
    kind: Literal["first"] = "first"
    a: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Second:
    kind: Literal["second"] = "second"
    b: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole:
    one: Literal[1, 2] = 1
    word: Literal["on", "off"] = "on"
    part: First | Second = dataclasses.field(default_factory=First)
    few: tuple[int, ...] | str = ()
    pair: tuple[int, float] = (1, 1.0)


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("one", {1: 1}, [True, 1.0, 3, "1"]),
        ("word", {"off": "off"}, [False, "of", None]),
        ("part", {"second": Second()}, ["third", 1, {"b": 3}, {"a": "x"}, None, []]),
        ("few", {"1..2": "1..2", (1, 2.0): (1, 2)}, [1, ["a"], [1.5], None]),
        ("pair", {(2.0, 3): (2, 3.0)}, [[1], [1, math.inf], [1.5, 1], "a", {}]),
    ],
)
def test_value_has_its_type(name: str, accepted: dict[Any, Any], refused: list[Any]) -> None:
    for written, meant in accepted.items():
        found = getattr(decode(Whole, {name: written}), name)
        assert (type(found), found) == (type(meant), meant)
    for value in refused:
        with pytest.raises(UserError, match=rf"^{name}\b"):
            decode(Whole, {name: value})


BASE = {"model": "DiT-S/2"}
SCAN = {"backbone": "rwkv", "depth": 12, "width": 32}

RUNS: list[tuple[dict[str, Any], str]] = [
    ({"routes": [{"start": 1, "end": 2, "rat": 0.5}]}, "routes[0]: unknown key 'rat', did you"),
    ({"routes": [{"end": 2}]}, "routes[0]: missing key 'start'"),
    ({"train": {"betas": [0.9, 1]}}, "train.betas[1]: must be in [0, 1), got 1"),
    ({"train": {"warmup": 1.5}}, "train.warmup: must be a step or a fraction, got 1.5. Try 30"),
    ({"train": {"ema": {"decay": 0.9, "halflife": 1}}}, "train.ema.decay: has no effect beside a"),
    ({"train": None}, "train: must be a mapping, got nothing"),
    ({"bypass": None}, "bypass: must be a mapping, got nothing"),
    ({"bypass": "sprint", "routes": ["0->2", "4->6"]}, "bypass: sprint requires one route, got 2"),
    ({"bypass": "mask", "routes": ["2->8"]}, "bypass: mask requires routes: [0->B-1], got "),
    ({"loss": "discrimination", "routes": ["2->8"]}, "loss: discrimination requires `bypass: ma"),
    ({"repa": {"block": 12}}, "repa.block: must be within blocks 0..11, got 12"),
    ({"init_from": {}}, "init_from: must be either a run or a file"),
    ({"init_from": {"run": BASE, "published_as": "sit"}}, "init_from.published_as: requires a fil"),
    ({"init_from": {"run": {**BASE, "seed": "x"}}}, "init_from.run.seed: must be a whole number"),
    ({"routes": ["2-"]}, "routes[0]: must be a route, got '2-' (a shell takes an unquoted > for a"),
    ({"routes": [{"start": 1.5, "end": 8}]}, "routes[0]: must be a block or a fraction of the dep"),
    ({"routes": [{"start": "b", "end": 8}]}, "routes[0]: must be a position, got 'b'. Try 2, B-4"),
    ({"routes": [{"start": 1, "end": 8, "rate": 0.01}]}, "routes[0].rate: must route at least one"),
    ({"model": SCAN, "routes": ["1->8"]}, "routes[0].selection: must keep whole rows for a scan"),
]
MODELS: list[tuple[Any, str]] = [
    ({"depth": 2, "width": 32}, "heads: must divide the width 32, got 0. Try heads=2."),
    ({"depth": 2, "width": 32, "heads": 3}, "heads: must divide the width 32, got 3"),
    ({"depth": 2, "width": 36, "heads": 6, "rope": True}, "rope: head width must be a multiple of"),
    (
        {"depth": 2, "width": 32, "heads": 2, "rope": True, "relative_bias": True},
        "relative_bias: must be false with rotary positions. Try rope=false.",
    ),
    ({**SCAN, "norm": "rms"}, "norm: requires the backbone dit, got rwkv"),
    ({"depth": 2, "width": 32, "heads": 2, "state": 8}, "state: requires the backbone mamba, got "),
    ("RWKV-210/2", "unknown model 'RWKV-210/2', did you mean 'RWKV-210M/2'?"),
    ("LightningDiT-B/1+qknorm", "LightningDiT-B/1+qknorm: unknown 'qknorm', did you mean 'qk_norm"),
]
OTHERS: list[tuple[type, Any, str]] = [
    (GuidanceSpec, {"weak": {"rate": "0.6-0"}}, "weak.rate: must be a rate, got '0.6-0'. Try 0.5"),
    (GuidanceSpec, {"weak": {"rate": "1->0"}}, "weak.rate.first: must be in [0, 1), got 1"),
    (GuidanceSpec, {"weight": 2, "interval": [2, 1]}, "interval: must be [lowest, highest], got ["),
    (GuidanceSpec, {"weak": {"path": "dropped", "rate": 0.5}}, "weak.path: must be full with a ra"),
    (SamplerSpec, {"sigma_min": 80}, "sigma_min: must be below sigma_max (80), got 80"),
    (SamplerSpec, {"solver": "sde", "last_step": 1}, "last_step: must be in (0, 1), got 1"),
]
WRONG = [
    *((RunSpec, {**BASE, **tree}, line) for tree, line in RUNS),
    (RunSpec, {}, "missing key 'model'"),
    *((ModelSpec, tree, line) for tree, line in MODELS),
    *OTHERS,
]


@pytest.mark.parametrize(("cls", "tree", "line"), WRONG)
def test_mistake_is_named_by_its_path(cls: type, tree: Any, line: str) -> None:
    with pytest.raises(UserError) as error:
        decode(cls, tree)
    assert len(error.value.args) == 1 and str(error.value).startswith(line)


def test_all_mistakes_are_named_at_once() -> None:
    train = {"lr": "fast", "ema": {"decay": 2}, "betas": [-1, 1]}
    with pytest.raises(UserError) as error:
        decode(RunSpec, {"train": train, "seeds": 3, "bypass": "sprint"}, "init_from.run")
    assert error.value.args == (
        "init_from.run: missing key 'model'",
        "init_from.run.train.lr: must be a number, got 'fast'",
        "init_from.run.train.betas[0]: must be in [0, 1), got -1.0",
        "init_from.run.train.betas[1]: must be in [0, 1), got 1.0",
        "init_from.run.train.ema.decay: must be in [0, 1), got 2.0",
        "init_from.run: unknown key 'seeds', did you mean 'seed'?",
    )
    assert pickle.loads(pickle.dumps(error.value)).args == error.value.args
    assert error.value._render_traceback_() == [*error.value.args]
    assert error.value.at("e.yaml").args[0] == "e.yaml: init_from.run: missing key 'model'"
