"""Captions beside packed arrays: captions.jsonl, one line for each sample with all its captions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tread_lab.config.errors import UserError

CAPTIONS = "captions.jsonl"
Captions = tuple[str, ...]  # all captions of one sample; COCO has five of each image


def read_captions(path: Path, count: int | None = None) -> list[Captions] | None:
    """Return all captions of each sample in their order; `None` without the file.

    A line is `{"captions": ["a dog on a beach", "a wet dog"]}`. A single file has none beside it.

    Args:
        count: of the stored samples, where it is known.

    Raises:
        UserError: a sample has no caption, or a line is something else; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"data.path: {path} must be text, got {error}") from None
    captions = [_captions(path, number, line) for number, line in enumerate(lines, start=1)]
    if count not in (None, len(captions)):
        raise UserError(f"data.path: {path} must have {count} lines, got {len(captions)}")
    return captions


def captions_of(holder: object) -> list[Captions] | None:
    """Return all captions of each sample of data or of a store, `None` where they have none.

    Raises:
        UserError: a sample has none, or their file is damaged.
    """
    read: Callable[[], list[Captions] | None] | None = getattr(holder, "captions", None)
    return None if read is None else read()


def write_captions(path: Path, captions: Iterable[Sequence[str]]) -> None:
    """Write one line for each sample."""
    with path.open("w", encoding="utf-8") as file:
        for texts in captions:
            file.write(json.dumps({"captions": list(texts)}, ensure_ascii=False) + "\n")


def _captions(path: Path, number: int, line: str) -> Captions:
    try:
        listed = json.loads(line)["captions"]
        texts = tuple(text.strip() for text in listed) if isinstance(listed, list) else ()
    except (ValueError, LookupError, TypeError, AttributeError):
        texts = ()
    if not texts or not all(texts):
        wanted = '{"captions": [...]} with a caption of sample'
        raise UserError(f"data.path: {path}, line {number}: must be {wanted} {number - 1}")
    return texts
