"""Defaults and limits of all specs as numbers: recorded runs rest on them."""

from __future__ import annotations

import pytest

from tests.frozen import not_frozen
from tread_lab import config as specs
from tread_lab.config import decode
from tread_lab.config.metrics import ReferenceSpec


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("imagenet256", "imagenet256", None),
        ("/x/VIRTUAL_imagenet256_labeled.npz", "imagenet256", "/x/VIRTUAL_imagenet256_labeled.npz"),
        ("VIRTUAL_imagenet512.npz", "imagenet512", "VIRTUAL_imagenet512.npz"),
        ("x/coco.npz", "coco", "x/coco.npz"),
        ("x/coco", "coco", "x/coco"),
    ],
)
def test_a_reference_is_named_for_what_its_file_is(text: str, name: str, path: str | None) -> None:
    assert decode(ReferenceSpec, text) == ReferenceSpec(name=name, path=path)


def test_every_dataclass_of_the_specs_is_frozen() -> None:
    assert not_frozen(specs) == set()
