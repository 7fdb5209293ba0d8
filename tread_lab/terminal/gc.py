"""Removable files of a lab by kind, with their sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tread_lab.specs.units import amount
from tread_lab.sweep.gc import Removable
from tread_lab.terminal.console import answer, answers, fitted


def show_removable(
    removable: Sequence[Removable],
    freed: int | None,
    *,
    as_json: bool,
    kept: int = 0,
) -> None:
    """Print the kinds of removable files with their number and size.

    Args:
        freed: bytes that were freed; `None` if the files are only listed.
        kept: bytes of samples, which stay until they are asked for.
    """
    if as_json:
        rows = [{**vars(item), "path": str(item.path)} for item in removable]
        print(json.dumps({"litter": rows, "freed": freed}, indent=1))
        return
    if kept:
        answer(
            f"{amount(kept)} of samples stay; `tread-lab gc --samples` offers those of finished"
            " evaluations too (metrics and sheets of samples stay)"
        )
    if not removable:
        answer("nothing to remove")
        return
    texts = []
    for what in dict.fromkeys(item.what for item in removable):
        sizes = [item.bytes for item in removable if item.what == what]
        texts.append([what, str(len(sizes)), amount(sum(sizes))])
    answers.print(fitted(("what", "files", "size"), texts, drop=["files"], width=answers.width))
    if freed is not None:
        answer(f"{amount(freed)} were freed")
    else:
        total = amount(sum(item.bytes for item in removable))
        answer(f"{total} would be freed; `tread-lab gc --yes` removes the files")
