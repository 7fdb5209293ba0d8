"""References by file: what statistics of real images are called, and where their file lies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from tread_lab.specs.errors import UserError

HELDOUT = "heldout"  # the data's own held-out images, where no file is named
# The files that ADM publishes (openai/guided-diffusion, evaluations/README.md), by what they are.
PUBLISHED: Mapping[str, str] = {
    "imagenet64": "VIRTUAL_imagenet64_labeled.npz",
    "imagenet128": "VIRTUAL_imagenet128_labeled.npz",
    "imagenet256": "VIRTUAL_imagenet256_labeled.npz",
    "imagenet512": "VIRTUAL_imagenet512.npz",
    "lsun_bedroom256": "VIRTUAL_lsun_bedroom256.npz",
    "lsun_cat256": "VIRTUAL_lsun_cat256.npz",
    "lsun_horse256": "VIRTUAL_lsun_horse256.npz",
}


@dataclass(frozen=True, kw_only=True)
class ReferenceSpec:
    """The statistics that generated images are compared with: an .npz as ADM's evaluator takes it.

    A text stands for the whole: a name (`imagenet256`), or the path of a file, which is named for
    what it is (`VIRTUAL_imagenet256_labeled.npz` is `imagenet256`, `coco.npz` is `coco`).

    Attributes:
        name: what the statistics are of; it is signed, and one lab never has two files of one name.
        path: the file; it is not signed. A file of this name in the folder TREAD_LAB_REFERENCES
            comes before it.
    """

    name: str
    path: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.name) or self.name == HELDOUT:
            raise UserError(f"name: {self.name!r} is no name of statistics, such as imagenet256")

    @property
    def files(self) -> tuple[str, ...]:
        """The names that its file may have in a folder."""
        published = PUBLISHED.get(self.name)
        return (f"{self.name}.npz", *([published] if published else []))

    @staticmethod
    def from_shorthand(value: object) -> dict[str, object]:
        """Return the fields of a name or of a path."""
        text = str(value)
        if "/" not in text and not text.endswith(".npz"):
            return {"name": text}
        file = PurePath(text).name
        names = {published: name for name, published in PUBLISHED.items()}
        return {"name": names.get(file, file.removesuffix(".npz")), "path": text}
