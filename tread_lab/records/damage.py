"""Damage of records: the files of a run or a sweep that their readers pass over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tread_lab.records.attempts import is_attempt
from tread_lab.records.checksums import TEXT_OR_NONE, Tree, fits
from tread_lab.records.durable import read_json
from tread_lab.records.evaluation_folder import EvaluationFolder
from tread_lab.records.log import is_entry, read_lines
from tread_lab.records.run_folder import DEFAULTS, RunFolder
from tread_lab.records.sweep_folder import is_spent, is_stopped, is_suggestion


def _lines(is_record: Callable[[Tree], bool]) -> Callable[[Path], bool]:
    """Return whether each line is a record; a crash leaves no whole line that is none."""
    return lambda path: all(map(is_record, read_lines(path)))


# Name of a record -> what its reader finds: nothing in a file that is none.
_READ: Mapping[str, Callable[[Path], Any]] = {
    "log.jsonl": _lines(is_entry),
    "attempts.jsonl": _lines(is_attempt),
    "asked.jsonl": _lines(is_suggestion),
    "stopped.jsonl": _lines(is_stopped),
    "spent.jsonl": _lines(is_spent),
    "result.json": lambda path: RunFolder(path.parent).result(),
    "metrics.json": lambda path: EvaluationFolder(path.parent).read(),
    "origin.json": lambda path: RunFolder(path.parent).origin(),
    DEFAULTS: lambda path: fits(read_json(path), {"sampler": dict}),
    "keep_steps.json": lambda path: RunFolder(path.parent).kept_steps(),
    "data.json": lambda path: fits(read_json(path), {"path": TEXT_OR_NONE}),
    "spec.yaml": lambda path: RunFolder(path.parent).spec_tree(),
}


def passed_over(folder: Path) -> list[str]:
    """Return the files below a folder that are damaged, or no records of this version."""
    files = (path for path in sorted(folder.rglob("*")) if is_passed_over(path))
    return [path.relative_to(folder).as_posix() for path in files]


def is_passed_over(path: Path) -> bool:
    """Return whether the reader of a record finds something in it that is none."""
    return path.name in _READ and not _READ[path.name](path)
