"""Claims about runs as the MLflow store has them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tracking.conftest import (
    FD,
    HELDOUT,
    SAMPLES,
    SIMILARITY,
    Store,
    Sweeps,
)
from tread_lab.records.lab import Lab
from tread_lab.tracking.projection import Number
from tread_lab.tracking.stored_run import (
    NOTE,
    SENT,
    Sent,
    contradicts,
    files_mark,
)


def test_what_was_sent_is_read_back_and_damage_is_nothing_sent() -> None:
    sent = Sent("abc", 7, 1000, "def")
    assert str(sent) == "stamp=abc log=7 born=1000 files=def" and Sent.parse(str(sent)) == sent
    for damaged in ("", "stamp=abc log=7", "stamp=abc log=x born=0 files=y"):
        assert Sent.parse(damaged) == Sent("", -1, 0, "")


def test_files_are_marked_by_size_and_time_and_made_ones_by_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("1")
    first = files_mark({"a": path, "b": "text"})
    assert files_mark({"b": "text", "a": path}) == first and len(first) == 16
    assert files_mark({"a": path, "b": "texts"}) != first
    assert files_mark({"c": path, "b": "text"}) != first
    path.write_text("22")
    assert files_mark({"a": path, "b": "text"}) != first


def test_a_users_notes_names_and_tags_are_left_alone(
    lab: Lab, sweeps: Sweeps, store: Store
) -> None:
    from mlflow import MlflowClient

    _, spec, _ = sweeps.complete()
    sweeps.sync()
    client = MlflowClient(tracking_uri=lab.mlflow_uri)
    child, parent = store.run_id("0->2 s=0.5 seed 0"), store.run_id("placement")
    client.set_tag(child, NOTE, "the loss spikes at 20k")
    client.set_tag(child, "paper", "figure 8")
    client.update_run(child, name="my favourite")
    client.set_tag(parent, NOTE, "shown to the group on Monday")
    more = replace(SAMPLES, count=500)
    sweeps.plan(evaluate=(HELDOUT, SIMILARITY, SAMPLES, more))
    assert sweeps.sync().updated >= 1
    assert store.run_id("my favourite") == child
    assert store.tags("placement")[NOTE] == "shown to the group on Monday"
    lab.run_of(spec).evaluation(SAMPLES).write(SAMPLES, {FD: 1.25}, step=40)
    report = sweeps.sync()
    assert (report.created, report.removed) == (1, 1)  # the run is made anew
    tags = store.tags("0->2 s=0.5 seed 0")
    assert (tags[NOTE], tags["paper"]) == ("the loss spikes at 20k", "figure 8")
    assert store.latest("0->2 s=0.5 seed 0")["fd:fashion16-v1:1k"] == 1.25


LOSS = {n: Number("train/loss", 0.5, n, n) for n in range(3)}
HELD = {"heldout/loss": Number("heldout/loss", math.nan, 2, 2)}
EARLIER = (Number("fd:x:1k", 9.0, 1, 2),)


@pytest.mark.parametrize(
    ("stored", "shown", "made_anew"),
    [
        ({}, {}, False),
        ({}, {"params": {"train.lr": "0.0002"}}, False),  # one more
        ({}, {"params": {"seed": "1"}}, True),
        ({}, {"born": 8}, True),  # another log
        ({"tags": {}}, {"born": 8}, False),  # of which nothing was sent
        ({}, {"logged": {0: LOSS[0], 1: LOSS[1]}}, True),  # which has lost a value
        ({}, {"measured": {"heldout/loss": replace(HELD["heldout/loss"], value=0.75)}}, True),
        ({"metrics": {"train/loss": 0.75}}, {}, False),  # curves may go on
        ({"metrics": {"gap/heldout_low": 0.1}}, {}, True),  # which the record lacks
        ({"metrics": {"fd:x:1k": 9.0}}, {}, True),
        ({"metrics": {"fd:x:1k": 9.0}}, {"during": EARLIER}, False),
    ],
)
def test_a_run_is_made_anew_where_the_store_says_what_cannot_be_taken_back(
    stored: dict[str, Any], shown: dict[str, Any], made_anew: bool
) -> None:
    own = {"train/loss": 0.5, "heldout/loss": math.nan, **stored.get("metrics", {})}
    sent = {"params": {"seed": "0"}, "tags": {SENT: str(Sent("s", log=2, born=7))}}
    run: Any = SimpleNamespace(data=SimpleNamespace(**{**sent, **stored, "metrics": own}))
    view = {"params": {"seed": "0"}, "logged": LOSS, "measured": HELD, "during": (), "born": 7}
    assert contradicts(run, SimpleNamespace(**{**view, **shown})) == made_anew  # type: ignore[arg-type]
