"""Claims about the shared parts of trials: what is decoded once is what `decode` gives."""

from __future__ import annotations

from tread_lab.specs import RunSpec, decode
from tread_lab.specs.trials import SharedParts

MODEL = {"depth": 2, "width": 32, "heads": 2}


def test_equal_trees_of_different_fields_are_different_parts() -> None:
    tree = {"model": MODEL, "data": {}, "process": {}, "train": {}, "execution": {}}
    assert SharedParts().run(tree) == decode(RunSpec, tree)


def test_a_part_of_the_base_has_a_key_without_being_read() -> None:
    base = {"model": MODEL, "seed": 0}
    parts = SharedParts(base)
    assert parts.key({**base, "seed": 1}) == parts.key({**base, "seed": 1})
    assert parts.key({**base, "seed": 1}) != parts.key({**base, "seed": 2})
    assert parts.is_base("model", MODEL) and not parts.is_base("model", dict(MODEL))
