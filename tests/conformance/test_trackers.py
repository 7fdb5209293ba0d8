"""Trackers show the numbers and parameters of the records, and a replay adds nothing.

MLflow: tests/tracking/test_tracking.py.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.frames import is_metric, trials_frame
from tread_lab.records.lab import Lab
from tread_lab.specs import signature
from tread_lab.tracking.projection import to_mlflow
from tread_lab.tracking.trackers import TRACKERS

NAME = "placement"


class Shown(NamedTuple):
    """What a tracker shows of a run: curves by metric and step, and its parameters."""

    curves: dict[str, dict[int, float]]
    params: dict[str, str | float]


def in_tensorboard(lab: Lab) -> Iterator[tuple[str, Shown]]:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    for file in lab.root.glob(f"tensorboard/{NAME}/*/events.out.tfevents.*"):
        raw, place, table = file.read_bytes(), 0, ""
        shown = Shown({}, {})
        while place < len(raw):  # length, its checksum, the event, its checksum
            (size,) = struct.unpack_from("<Q", raw, place)
            event = Event.FromString(raw[place + 12 : place + 12 + size])
            place += 16 + size
            for value in event.summary.value:
                if value.tag == "_hparams_/session_start_info":
                    plugin = HParamsPluginData.FromString(value.metadata.plugin_data.content)
                    params = plugin.session_start_info.hparams.items()
                    shown.params.update({k: getattr(v, v.WhichOneof("kind")) for k, v in params})
                elif value.WhichOneof("value") == "simple_value":
                    shown.curves.setdefault(value.tag, {})[event.step] = value.simple_value
                elif value.tag.startswith("run"):
                    table = value.tensor.string_val[0].decode()
        yield re.findall(r"\| signature \| (\w+) \|", table)[0], shown


def in_wandb(lab: Lab) -> Iterator[tuple[str, Shown]]:
    import json

    from wandb.proto.wandb_internal_pb2 import Record

    for file in lab.root.glob(f"wandb/{NAME}/*/wandb/offline-run-*/*.wandb"):
        shown = Shown({}, {})
        for raw in leveldb_records(file.read_bytes()):
            record = Record.FromString(raw)
            if record.WhichOneof("record_type") == "run":
                config = {u.key: json.loads(u.value_json) for u in record.run.config.update}
                shown.params.update({k: v for k, v in config.items() if not k.startswith("_")})
            elif record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
                step = record.history.step.num
                assert row["_timestamp"] == BEGUN  # not when it was written
                for key, value in row.items():
                    if not key.startswith("_"):
                        shown.curves.setdefault(key, {})[step] = float(value)
        yield str(shown.params["signature"]), shown


def leveldb_records(raw: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB, in blocks of 32 KiB, after W&B's head of seven bytes."""
    place, parts = 7, b""
    while place + 7 <= len(raw):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", raw, place + 4)
        parts += raw[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole one, or the last part of one
            yield parts
            parts = b""


READERS: dict[str, Callable[[Lab], Iterator[tuple[str, Shown]]]] = {
    "tensorboard": in_tensorboard,
    "wandb": in_wandb,
}
BEGUN = 1_700_000_000.0  # the time of all values, because these runs have no log
ROUNDED = {"tensorboard": 1e-6}  # stores fp32


def recorded(lab: Lab) -> dict[str, Shown]:
    """By run, what its records and the frame of the sweep say."""
    runs = {}
    for _, row in trials_frame(lab, NAME).iterrows():
        run = lab.run(row["run"])
        final = {k: float(v) for k, v in row.items() if is_metric(str(k)) and isinstance(v, float)}
        curves: dict[str, dict[int, float]] = {}
        for entry in run.entries():
            if entry.key not in final or math.isnan(final[entry.key]):
                curves.setdefault(to_mlflow(entry.key), {})[entry.step] = entry.value
        steps = int(row["steps_done"])
        curves |= {to_mlflow(k): {steps: v} for k, v in final.items() if not math.isnan(v)}
        train: dict[str, str | float] = {"train.lr": 1e-4, "train.batch": 16, "train.steps": 400}
        runs[run.name] = Shown(curves, train)
    return runs


@pytest.mark.parametrize("tracker", READERS)
def test_a_tracker_shows_what_the_records_hold_and_a_replay_adds_nothing(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(TRACKERS[tracker].package)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    lab = write_sweep(tmp_path, small(similarity=True))
    for spec in lab.root.glob("runs/*/spec.yaml"):
        os.utime(spec, (BEGUN, BEGUN))
    first = TRACKERS[tracker].make(lab).sync(NAME)
    shown = dict(READERS[tracker](lab))
    expected = recorded(lab)
    assert first.problems == () and shown.keys() == expected.keys() and len(shown) == 4
    for run, (curves, params) in expected.items():
        assert params.items() <= shown[run].params.items()
        assert shown[run].curves.keys() == curves.keys()
        for key, values in curves.items():
            rounded = ROUNDED.get(tracker, 0.0)
            assert shown[run].curves[key] == pytest.approx(values, rel=rounded, abs=0)
    again = TRACKERS[tracker].make(lab).sync(NAME)
    assert (again.created, again.updated, again.removed, again.values) == (0, 0, 0, 0)
    assert dict(READERS[tracker](lab)) == shown
    lab.run(signature(tiny_spec((2, 8)))).write_origin({"code": "def5678"})
    changed = TRACKERS[tracker].make(lab).sync(NAME)
    assert (changed.updated >= 1, changed.created, changed.removed) == (True, 0, 0)
    assert dict(READERS[tracker](lab)).keys() == shown.keys()
