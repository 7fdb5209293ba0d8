"""What is read from records is frozen; wrong kinds make no reader raise and are not imported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.frozen import not_frozen
from tests.records.conftest import Entry, entry, merged, packed, rewritten
from tread_lab import records
from tread_lab.frames import trials_frame
from tread_lab.records.checksums import json_text
from tread_lab.records.lab import Lab
from tread_lab.records.log import with_checksum
from tread_lab.records.run_status import run_status
from tread_lab.records.sweep_folder import seconds_spent
from tread_lab.specs import UserError
from tread_lab.terminal.status import show_lab, show_run, show_sweep

ENTRY = {"n": 0, "step": 1, "key": "a", "value": 0.5, "time": 1.5}
REMARK = {"event": "stop", "text": "x", "by": "me", "time": 1.0}
DEEP = '{"a":' * 9999 + "1" + "}" * 9999
LINES: dict[str, list[Any]] = {  # file -> lines with a checksum that are no records
    "log.jsonl": [
        *({**ENTRY, key: value} for key in ENTRY for value in ([1], {}, None)),
        {**ENTRY, "step": "1"},
        {**ENTRY, "value": 10**400},
        {"time": []},
    ],
    "attempts.jsonl": [
        {},
        {"event": "opened"},
        {"event": ["opened"], "n": 1},
        *({"event": "opened", "n": n} for n in ([], "1", None, {})),
        *({"event": "opened", "n": 1, key: 7} for key in ("ended", "reason", "made_with")),
        {"event": "closed", "n": 1, "ended": []},
        {"event": "opened", "n": 1, "time": "now"},
        {"event": "opened", "n": 1, "made_with": {"code": []}},
    ],
    "remarks.jsonl": [{**REMARK, key: value} for key in REMARK for value in ([], None)],
    "stopped.jsonl": [{"run": [], "step": 1, "reason": ""}, {"run": "a", "step": {}, "reason": 1}],
    "spent.jsonl": [
        {"session": [], "seconds": []},
        {"session": "a", "seconds": "x"},
    ],
    "asked.jsonl": [
        {"number": [], "cell": {}, "trials": []},
        {"number": 0, "cell": {}, "trials": 7},
        {"number": 0, "cell": {}, "trials": [{}]},
        {"number": 0, "cell": {}, "trials": [7]},
    ],
}
LISTS: list[Any] = [[], 7, "x", None]
SPEC = {"kind": "samples"}
MEASURED = {"metrics": {}, "weights": {"last": "x"}}
TREES: dict[str, list[Any]] = {  # file -> trees that are no records
    "result.json": [
        *({"state": "completed", k: x} for k in ("step", "devices") for x in ([], "x", None, 1.5)),
        *({"state": "completed", "metrics": v} for v in (*LISTS, {"a": []}, {"a": "x"})),
        *({"state": "completed", "files": v} for v in (*LISTS, {"log.jsonl": 7})),
        *({"state": "failed", key: value} for key in ("kind", "reason") for value in ([], 7)),
        {"state": []},
    ],
    "metrics.json": [
        *({"spec": SPEC, "metrics": v} for v in (*LISTS, {"a": []}, {"a": "x"})),
        *({"spec": v, "metrics": {}} for v in LISTS),
        *({"spec": {**SPEC, k: 7}, "metrics": {}} for k in ("metrics", "reference", "sampler")),
        {"spec": {**SPEC, "step": []}, "metrics": {}},
        {"metrics": {}},
        *(
            {"spec": {**SPEC, "sampler": {"guidance": {"strong": branch, "weak": 7}}}, **MEASURED}
            for branch in ("dense", 2.5, [1], {"step": []}, {"step": 1})  # as a later version may
        ),
        {"spec": SPEC, "metrics": {}, "files": [7]},
        {"spec": SPEC, "metrics": {}, "problem": 7},
        {"spec": SPEC, "metrics": {}, "made_with": {"code": []}},
    ],
    "origin.json": [7, "x", {"attempts": 7}, {"attempts": [7]}],
    "evaluation_defaults.json": [7, "x", {"sampler": 7}, {"steps": 7}, {"heldout_loss": []}],
    "keep_steps.json": [7, "x", {"steps": 7}, {"steps": [[]]}],
    "data.json": [[], 7, {"path": []}],
    "plan.json": [
        *({"format": 1, "name": "x", "trials": v} for v in (7, [7], [{}])),
        {"format": []},
    ],
    "spec.yaml": [{"data": 7}, {"data": {"path": []}}, {"model": 7}, {"routes": 7}, {"train": []}],
}
TEXTS = [(file, with_checksum(line)) for file, lines in LINES.items() for line in lines]
TEXTS += [
    (file, yaml.safe_dump(tree) if file == "spec.yaml" else json_text(tree))
    for file, trees in TREES.items()
    for tree in trees
]
TEXTS += [(file, DEEP) for file in ("result.json", "plan.json", "origin.json")]


def paths(lab: Lab, file: str) -> list[str]:
    """The files of a name in a lab with one sweep, as an archive names them."""
    run, sweep = lab.runs()[0], lab.sweep("placement")
    if file == "metrics.json":
        return [next(run.evaluations()).path.relative_to(lab.root).as_posix() + "/metrics.json"]
    if file in ("plan.json", "stopped.jsonl", "spent.jsonl", "asked.jsonl"):
        return [sweep.path.relative_to(lab.root).as_posix() + f"/{file}"]
    return [run.path.relative_to(lab.root).as_posix() + f"/{file}"]


def test_no_reader_raises_at_a_record_of_wrong_kinds(source: Lab) -> None:
    failed = []
    for file, text in TEXTS:
        (name,) = paths(source, file)
        path = source.root / name
        kept = path.read_bytes() if path.exists() else None
        path.write_text(text)
        try:
            failed += [f"{file}: {text[:90]!r}: {e}" for e in raised(source, file)]
        finally:
            path.unlink() if kept is None else path.write_bytes(kept)
    assert failed == []


def raised(lab: Lab, file: str) -> list[str]:
    """What readers raise beside a line for people that names the file."""
    run, sweep = lab.runs()[0], lab.sweep("placement")
    spec = run.readable_spec()
    readers = (
        lambda: run_status(run),
        lambda: (run.entries(), run.origin(), run.kept_steps(), run.damaged()),
        lambda: (run.evaluation_defaults(), list(run.end_evaluations())),
        lambda: [evaluation.done for evaluation in run.evaluations()],
        lambda: seconds_spent(sweep.spent_path),
        lambda: show_lab(lab, as_json=False),
        lambda: show_sweep(lab, "placement", as_json=False),
        lambda: show_sweep(lab, "placement", as_json=True),
        lambda: show_run(run),
        lambda: trials_frame(lab, "placement"),
        lambda: spec is None or run.create(spec),
    )
    errors = []
    for read in readers:
        try:
            read()
        except UserError as error:
            if file not in str(error):
                errors.append(f"unnamed: {error}")
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors


@pytest.mark.parametrize("file", [*LINES, *TREES])
def test_such_a_record_is_refused_by_its_name_in_an_export_and_in_an_archive(
    source: Lab, archive: Path, lab: Lab, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place,) = paths(source, file)
    text = next(text for kind, text in TEXTS if kind == file)
    path, name = source.root / place, place.replace("sweeps/placement", "sweep")
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(path.name)):
        packed(source, archive.with_name("sweep.zip"))
    assert not archive.with_name("sweep.zip").exists()
    if place.startswith("runs/") and file not in ("spec.yaml", "evaluation_defaults.json"):
        show_run(source.runs()[0])
        assert re.search(rf"damaged +{place.split('/', 2)[2]}$", capsys.readouterr().out, re.M)

    def change(entries: list[Entry]) -> list[Entry]:
        others = [(e, content) for e, content in entries if e.filename != name]
        return [*others, entry(name, text.encode())]

    rewritten(archive, change)
    with pytest.raises(UserError) as refusal:
        merged(lab, archive)
    assert name in str(refusal.value) and str(refusal.value).endswith("; nothing was imported")
    assert not lab.root.exists() or not list(lab.root.iterdir())


def test_every_dataclass_is_frozen() -> None:
    assert not_frozen(records) == set()
