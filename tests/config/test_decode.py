"""Claims about decoding: round trips, and what a field of each type may hold."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frozen import not_frozen
from tread_lab import config
from tread_lab.config import RunSpec, UserError, decode, encode, signature

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
