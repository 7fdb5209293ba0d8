"""Claims about runs as the MLflow store has them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
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
from tread_lab.tracking.stored_run import NAME, NOTE, Authored, Sent, contradicts, files_mark


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


Sync = Callable[..., Any]


def test_a_record_that_was_replaced_replaces_its_run(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    _, spec, _ = sweeps.complete()
    sync()
    before = store.run_id("0->2 s=0.5 seed 0")
    rows = store.count("metrics")
    shutil.rmtree(lab.run_of(spec).path)
    sync()
    assert "0->2 s=0.5 seed 0" not in store.runs()  # pending again
    sweeps.finish(spec)
    sync()
    after = store.run_id("0->2 s=0.5 seed 0")
    assert before != after
    query = "SELECT count(*) FROM metrics WHERE run_uuid != ?"
    assert store.rows(query, before) == [(rows,)]


def test_a_run_done_anew_does_not_get_two_curves(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    _, spec, _ = sweeps.plan()
    sweeps.log(spec, 5, 20)
    sync()
    shutil.rmtree(lab.run_of(spec).path)
    run = sweeps.log(spec, 5, 40)
    assert sync().removed == 1
    query = "SELECT count(*) FROM metrics WHERE run_uuid = ?"
    assert store.rows(query, store.run_id("0->2 s=0.5 seed 0")) == [(len(run.entries()),)]


def test_an_evaluation_that_changed_is_not_shown_beside_its_old_value(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    _, spec, _ = sweeps.complete()
    sync()
    lab.run_of(spec).evaluation(SAMPLES).write(SAMPLES, {FD: 1.25}, step=40)
    report = sync()
    assert (report.created, report.removed) == (1, 1)
    assert store.latest("0->2 s=0.5 seed 0")["fd:fashion16-v1:1k"] == 1.25


def test_a_number_under_the_name_of_an_earlier_version_goes(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    from mlflow import MlflowClient

    sweeps.complete()
    sync()
    child = store.run_id("0->2 s=0.5 seed 0")
    client = MlflowClient(tracking_uri=lab.mlflow_uri)
    client.log_metric(child, "gap/heldout_low", 0.1, step=40)
    client.set_tag(child, "mlflow.note.content", "mine")
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    report = sync()
    assert (report.created, report.removed) == (1, 1)
    latest = store.latest("0->2 s=0.5 seed 0")
    assert "gap/heldout_low" not in latest and "gap/heldout:low" in latest
    assert store.tags("0->2 s=0.5 seed 0")["mlflow.note.content"] == "mine"


def test_what_a_person_typed_survives_every_sync(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    from mlflow import MlflowClient

    _, spec, _ = sweeps.complete()
    sync()
    client, note = MlflowClient(tracking_uri=lab.mlflow_uri), "mlflow.note.content"
    child, parent = store.run_id("0->2 s=0.5 seed 0"), store.run_id("placement")
    client.set_tag(child, note, "the loss spikes at 20k")
    client.set_tag(child, "problem", "look at this one")
    client.set_tag(child, "paper", "figure 8")
    client.update_run(child, name="my favourite")
    client.set_tag(parent, note, "shown to the group on Monday")
    client.update_run(parent, name="placement, first try")

    def typed(child: str) -> None:
        assert {"my favourite", "placement, first try"} <= set(store.runs())
        assert store.run_id("my favourite") == child and len(store.runs()) == 4
        tags = store.tags("my favourite")
        assert (tags[note], tags["paper"]) == ("the loss spikes at 20k", "figure 8")
        assert tags["problem"] == "look at this one"
        assert store.tags("placement, first try")[note] == "shown to the group on Monday"

    assert sync().problems == ()  # nothing has changed
    typed(child)
    lab.run_of(spec).write_origin({"code": "def5678", "device": "cpu"})  # a second attempt
    (lab.sweep("placement").stopped_path).touch()
    more = dataclasses.replace(SAMPLES, count=500)
    sweeps.plan(evaluate=(HELDOUT, SIMILARITY, SAMPLES, more))  # as `--extend` does
    assert sync().updated >= 1
    typed(child)
    lab.run_of(spec).evaluation(SAMPLES).write(SAMPLES, {FD: 1.25}, step=40)
    report = sync()
    assert (report.created, report.removed) == (1, 1)  # the run is made anew
    typed(store.run_id("my favourite"))
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    sync()
    typed(store.run_id("my favourite"))
    assert store.latest("my favourite")["fd:fashion16-v1:1k"] == 1.25


def test_a_note_that_nobody_touched_follows_the_records(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    first, second, third = sweeps.plan()
    note = "mlflow.note.content"
    sweeps.finish(first)
    sweeps.finish(second, "failed", reason="RuntimeError: x")
    sync()
    assert "1 completed, 1 failed, 1 pending" in store.tags("placement")[note]
    assert store.tags("0->2 s=0.5 seed 0")[note] == "**failed**: RuntimeError: x"
    lab.run_of(second).reopen()
    sweeps.finish(third)
    sync()
    assert "2 completed, 1 interrupted" in store.tags("placement")[note]
    assert note not in store.tags("0->2 s=0.5 seed 0")


def test_a_store_of_an_earlier_version_keeps_notes_and_names(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    note = "mlflow.note.content"
    sweeps.complete()
    sync()
    store.rows("DELETE FROM tags WHERE key IN ('tread_lab.authored', 'tread_lab.sent')")
    child = store.run_id("0->2 s=0.5 seed 0")
    store.rows("UPDATE runs SET name = 'mine' WHERE run_uuid = ?", child)
    store.rows("UPDATE tags SET value = '**old** ranking' WHERE key = ?", note)
    store.rows("INSERT INTO tags (key, value, run_uuid) VALUES (?, 'typed', ?)", note, child)
    sync()
    assert store.tags("mine")[note] == "typed"
    assert store.tags("placement")[note].startswith("**Where?**")


def test_a_number_that_is_none_stays_so_and_its_run_is_not_made_anew(
    sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    _, spec, _ = sweeps.plan()
    run = sweeps.finish(spec, metrics={"cost/train_flops": float("nan")})
    sync()
    run.write_origin({"code": "def5678", "device": "cpu"})
    report = sync()
    assert (report.updated, report.removed) == (1, 0)


def test_a_parameter_may_be_added_to_a_stored_run_and_none_changed() -> None:
    stored: Any = SimpleNamespace(data=SimpleNamespace(params={"seed": "0"}, tags={}, metrics={}))
    view: Any = SimpleNamespace(params={}, logged={}, measured={}, during=(), born=0)
    for params, made_anew in (
        ({"seed": "0", "train.lr": "0.0002"}, False),
        ({"train.lr": "0.0002"}, False),
        ({"seed": "1"}, True),
    ):
        view.params = params
        assert contradicts(stored, view) == made_anew, params


def test_a_text_is_ours_if_we_would_write_it_or_wrote_it_last() -> None:
    authored = Authored.parse(str(Authored.of({NOTE: "first", NAME: "run"})))
    assert authored.known and len(authored.digests[NOTE]) == 16
    assert authored.is_ours(NOTE, "first", "second")
    assert authored.is_ours(NOTE, "second", "second")
    assert not authored.is_ours(NOTE, "a person's", "second")
    assert not authored.is_ours(NAME, "first", None) and not authored.is_ours("problem", "x", "y")


@pytest.mark.parametrize(
    ("place", "text", "ours"),
    [(NOTE, "**bold", True), (NOTE, "plain", False), (NAME, "x", False), ("problem", "x", True)],
)
def test_versions_without_digests_are_known_by_their_notes(
    place: str, text: str, ours: bool
) -> None:
    assert Authored.parse(None).is_ours(place, text, "other") == ours
    assert not Authored.parse("").is_ours(place, text, "other")
