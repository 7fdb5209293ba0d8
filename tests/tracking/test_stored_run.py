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
    AUTHORED,
    NAME,
    NOTE,
    SENT,
    Sent,
    authored,
    contradicts,
    files_mark,
    typed,
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


def test_what_a_person_typed_survives_every_sync(lab: Lab, sweeps: Sweeps, store: Store) -> None:
    from mlflow import MlflowClient

    _, spec, _ = sweeps.complete()
    sweeps.sync()
    client, note = MlflowClient(tracking_uri=lab.mlflow_uri), "mlflow.note.content"
    child, parent = store.run_id("0->2 s=0.5 seed 0"), store.run_id("placement")
    client.set_tag(child, note, "the loss spikes at 20k")
    client.set_tag(child, "paper", "figure 8")
    client.update_run(child, name="my favourite")
    client.set_tag(parent, note, "shown to the group on Monday")
    client.update_run(parent, name="placement, first try")

    def typed(child: str) -> None:
        assert {"my favourite", "placement, first try"} <= set(store.runs())
        assert store.run_id("my favourite") == child and len(store.runs()) == 4
        tags = store.tags("my favourite")
        assert (tags[note], tags["paper"]) == ("the loss spikes at 20k", "figure 8")
        assert store.tags("placement, first try")[note] == "shown to the group on Monday"

    assert sweeps.sync().problems == ()  # nothing has changed
    typed(child)
    lab.run_of(spec).write_origin({"code": "def5678", "device": "cpu"})  # a second attempt
    (lab.sweep("placement").stopped_path).touch()
    more = replace(SAMPLES, count=500)
    sweeps.plan(evaluate=(HELDOUT, SIMILARITY, SAMPLES, more))  # as an edited file does
    assert sweeps.sync().updated >= 1
    typed(child)
    lab.run_of(spec).evaluation(SAMPLES).write(SAMPLES, {FD: 1.25}, step=40)
    report = sweeps.sync()
    assert (report.created, report.removed) == (1, 1)  # the run is made anew
    typed(store.run_id("my favourite"))
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    sweeps.sync()
    typed(store.run_id("my favourite"))
    assert store.latest("my favourite")["fd:fashion16-v1:1k"] == 1.25


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
        ({"metrics": {"gap/heldout_low": 0.1}}, {}, True),
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


@pytest.mark.parametrize(
    ("last", "name", "note", "kept"),
    [
        ({NAME: "run", NOTE: "first"}, "run", "first", {}),
        ({NAME: "run", NOTE: "first"}, "anew", "second", {}),  # as it would be written now
        ({NAME: "run", NOTE: "first"}, "mine", "a person's", {NAME: "mine", NOTE: "a person's"}),
        ({NAME: "run"}, "run", "**bold", {NOTE: "**bold"}),
        (None, "anew", "plain", {NOTE: "plain"}),
    ],
)
def test_a_person_wrote_what_the_sync_would_not_write_and_did_not_write_last(
    last: dict[str, str] | None, name: str, note: str, kept: dict[str, str]
) -> None:
    tags = {NOTE: note, **({} if last is None else {AUTHORED: authored(last)})}
    data, info = SimpleNamespace(tags=tags), SimpleNamespace(run_name=name)
    run: Any = SimpleNamespace(data=data, info=info)
    assert typed(run, {NAME: "anew", NOTE: "second"}) == kept
