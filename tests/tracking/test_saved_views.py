"""Saved views are what MLflow's pages read, and the same each time."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.four_sweeps import same_as_stored
from tread_lab.tracking.saved_views import SavedViews

STORED = Path(__file__).parent / "stored"
VIEWS = SavedViews(
    sweep="placement",
    condition="tags.`tread_lab.sweep` = 'placement'",
    metrics=[
        *("train/loss", "kid@1k", "fd[fashion16-v1]@1k", "fd[fashion16-v1]@1k:low"),
        *("gap/train", "gap/heldout", "gap/heldout:low"),
    ],
    ranked_by="gap/heldout",
    mapped=True,
    pictures=["pictures/samples_64"],
    seed=0,
    step=1400,
    trials=17,
    written=5,
)
OTHERS: dict[str, dict[str, Any]] = {
    "a sweep": {},
    "more is better by a score, and nothing is said of the other": {
        **{"metrics": ["fd@1k", "is@50k", "sharpness@1k"], "ranked_by": "is@50k"},
        "mapped": False,
    },
    "as many trials as are drawn at once, and no pictures": {
        **{"trials": 200, "pictures": ()},
    },
    "one trial more than are drawn at once, and nothing measured": {
        **{"trials": 201, "metrics": (), "ranked_by": None},
    },
}


def as_read(views: SavedViews) -> Iterator[str]:
    """What MLflow's page unpacks, a line for each field, chart and section of each view."""
    for key, value in views.tags().items():
        tree = json.loads(value)
        head, _, packed = tree.pop("state").partition(";")
        state = json.loads(zlib.decompress(base64.b64decode(packed)))
        charts, sections = (state.pop(f"compareRun{part}") for part in ("Charts", "Sections"))
        yield f"== {key}: {json.dumps(tree)}, {head}"
        yield from (f"{name}: {json.dumps(field)}" for name, field in state.items())
        yield from map(json.dumps, [*charts, *sections])


def test_views_have_every_field_that_mlflows_page_reads() -> None:
    lines = list[str]()
    for title, changes in OTHERS.items():
        views = dataclasses.replace(VIEWS, **changes)
        lines += [f"===== {title}: {views.link('7')}", *as_read(views)]
    same_as_stored(STORED / "saved_views.txt", "\n".join(lines) + "\n")


def test_a_thousand_trials_fit_into_a_tag() -> None:
    metrics = [f"gap/{k}:low" for k in range(40)] + [*VIEWS.metrics]
    tags = dataclasses.replace(VIEWS, metrics=metrics).tags()
    assert max(map(len, tags.values())) < 20_000
