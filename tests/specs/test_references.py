"""The files that ADM publishes, by what they are."""

from __future__ import annotations

from tread_lab.specs.references import HELDOUT, PUBLISHED


def test_the_published_files_have_these_names() -> None:
    assert HELDOUT == "heldout"
    assert PUBLISHED == {
        "imagenet64": "VIRTUAL_imagenet64_labeled.npz",
        "imagenet128": "VIRTUAL_imagenet128_labeled.npz",
        "imagenet256": "VIRTUAL_imagenet256_labeled.npz",
        "imagenet512": "VIRTUAL_imagenet512.npz",
        "lsun_bedroom256": "VIRTUAL_lsun_bedroom256.npz",
        "lsun_cat256": "VIRTUAL_lsun_cat256.npz",
        "lsun_horse256": "VIRTUAL_lsun_horse256.npz",
    }
