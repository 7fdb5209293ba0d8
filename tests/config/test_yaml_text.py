"""A file and an override are read by the scalars of YAML 1.2, and what is written reads back."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tread_lab.config.load import load_experiment
from tread_lab.config.yaml_text import dump_yaml, load_yaml

SCALARS = {
    "010": 10, "0o10": 8, "0x1f": 31, "-7": -7, "1e-4": 1e-4, "1.": 1.0, ".5": 0.5, "+1E+3": 1e3,
    "true": True, "False": False, "null": None, "~": None, "-.inf": -math.inf,
    **{text: text for text in ("no", "yes", "on", "off", "1:30", "1_000", "2->8", "2020-01-01")},
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = load_yaml(f"a: [{text}]", "f")["a"][0]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("text", ["010", "1_000", "1:30", "1e-4", ".5", "off", "true", "[1, 2]"])
def test_file_and_override_read_alike(text: str, in_folder: object) -> None:
    Path("e.yaml").write_text(f"model: DiT-S/2\nsampler: {{rho: {text}}}\n")
    Path("b.yaml").write_text("model: DiT-S/2\n")
    typed = load_experiment("b.yaml", [f"sampler.rho={text}"])
    assert typed.sampler == load_experiment("e.yaml").sampler


texts = st.text(alphabet="01234567890eE+-._xonaftruely:~<=", max_size=8)


@given(st.lists(texts | st.floats(allow_nan=False) | st.integers() | st.none() | st.booleans()))
def test_what_is_written_reads_back(values: list[object]) -> None:
    assert load_yaml(dump_yaml(values), "f") == values
