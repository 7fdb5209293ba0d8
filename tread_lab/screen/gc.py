"""What could be removed from a lab, by kind, and what that makes free."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tread_lab.screen.console import answer, answers, fitted
from tread_lab.specs.units import amount
from tread_lab.sweep.gc import Removable


def show_removable(
    litter: Sequence[Removable], freed: int | None, *, as_json: bool, samples_kept: int = 0
) -> None:
    """Kinds with their number and size.

    Args:
        freed: bytes that are free now; `None` while it is only listed.
        samples_kept: bytes of samples that could go too.
    """
    if as_json:
        rows = [{**vars(item), "path": str(item.path)} for item in litter]
        print(json.dumps({"litter": rows, "freed": freed}, indent=1))
        return
    if samples_kept:
        answer(
            f"{amount(samples_kept)} of samples stay; `tread-lab gc --samples` offers those of"
            " finished evaluations too (metrics and sheets of samples stay)"
        )
    if not litter:
        answer("nothing to remove")
        return
    texts = []
    for what in dict.fromkeys(item.what for item in litter):
        sizes = [item.bytes for item in litter if item.what == what]
        texts.append([what, str(len(sizes)), amount(sum(sizes))])
    answers.print(fitted(("what", "files", "size"), texts, drop=["files"], width=answers.width))
    total = amount(sum(item.bytes for item in litter))
    done = f"{amount(freed)} are free now" if freed is not None else ""
    answer(done or f"{total} would be free; `tread-lab gc --yes` removes it")
