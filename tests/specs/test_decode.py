"""Claims about strict decoding: round trips, dotted paths, suggestions."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.four_sweeps import outcomes, same_as_stored
from tread_lab.specs import RunSpec, UserError, decode, encode, signature
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.recipe import EmaSpec

BASE = {"model": "DiT-S/2"}
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
def test_decode_after_encode_is_the_identity_and_the_tree_has_the_name_of_its_spec(
    tree: dict[str, Any],
) -> None:
    spec = decode(RunSpec, tree)
    assert decode(RunSpec, encode(spec)) == spec
    assert signature(dict(reversed(encode(spec).items()))) == signature(spec)
    child = decode(RunSpec, {**encode(spec), "init_from": {"run": encode(spec)}})
    assert child.ancestors[-1].network == spec.network and signature(child) != signature(spec)


def test_evaluations_that_are_encoded_are_decoded_to_the_same() -> None:
    evaluations = decode_evaluations(["heldout_loss", "layer_similarity", "fd@1k"])
    again = [{e["kind"]: {k: v for k, v in e.items() if k != "kind"}} for e in encode(evaluations)]
    assert decode_evaluations(again) == evaluations


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({**BASE, "sed": 1}, "unknown key 'sed', did you mean 'seed'?"),
        ({**BASE, "train": {"batchh": 1}}, "train: unknown key 'batchh', did you mean 'batch'?"),
        ({**BASE, "routes": [{"start": 1, "end": 2, "rat": 0.5}]}, "routes[0]: unknown key 'rat'"),
        ({**BASE, "train": {"lr": True}}, "train.lr: expected a number, got True"),
        ({**BASE, "train": None}, "train: expected a mapping, got nothing"),
        ({**BASE, "process": {"kind": "ddpn"}}, "process: unknown kind 'ddpn', did you mean"),
        ({}, "missing key 'model'"),
    ],
)
def test_a_mistake_is_named_by_its_dotted_path(tree: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        decode(RunSpec, tree)
    assert str(error.value).startswith(message)


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
    only: Literal["a", "b"] = "a"
    part: First | Second = dataclasses.field(default_factory=First)
    mixed: First | int = 0
    few: tuple[int, ...] | str = ()
    pair: tuple[int, float] = (1, 1.0)


VALUES: tuple[Any, ...] = (
    *(True, False, 1, 2, 3, 1.0, 1.5, 2.0, math.inf, math.nan, None, "a", "on", "1..2"),
    *("first", "second", "third", {}, {"a": 3}, {"b": 3}, {"a": "x"}, {"kind": "second", "b": 2}),
    *([], [1, 2], [2.0, 3], ["a"], [1, math.inf], [1.5, 1], (1, math.nan), [1, 2, 3]),
)


def test_a_value_is_what_its_type_says_or_is_told_with_its_place() -> None:
    """Each value in a field of each type."""

    def decoded(name: str, value: Any) -> Any:
        return getattr(decode(Whole, {name: value}), name)

    lines = [
        f"{field.name}: {field.type}: {outcomes(partial(decoded, field.name), VALUES)}"
        for field in dataclasses.fields(Whole)
    ]
    same_as_stored(Path(__file__).parent / "stored" / "decoded.txt", "\n".join(lines) + "\n")


def test_what_is_decoded_already_is_the_same_object() -> None:
    spec = decode(RunSpec, BASE)
    assert decode(RunSpec, spec) is spec
    assert decode(RunSpec, {**BASE, "train": spec.train}).train is spec.train


def test_a_list_is_no_shorthand() -> None:
    for value in ([0.9], None, (0.9,)):
        with pytest.raises(UserError, match="ema: expected a mapping, got "):
            decode(EmaSpec, value, "ema")
