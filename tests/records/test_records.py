"""Records are frozen; a file that cannot be parsed is one line with its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frozen import not_frozen
from tests.synthetic import small, write_sweep
from tread_lab import records
from tread_lab.config import UserError
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder

READERS: dict[str, Callable[[RunFolder], object]] = {
    "spec.yaml": RunFolder.spec,
    "result.json": RunFolder.state,
    "log.jsonl": RunFolder.entries,
    "attempts.jsonl": lambda run: run.attempts(),
    "keep_steps.json": RunFolder.kept_steps,
    "evaluation_defaults.json": RunFolder.evaluation_defaults,
}


def refusal(path: Path, read: Callable[[], object]) -> None:
    path.write_text("{a: [\n")
    with pytest.raises(UserError) as caught:
        read()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("file", READERS)
def test_unparsable_file_of_run_is_named(file: str, tmp_path: Path) -> None:
    run = write_sweep(tmp_path, small()).runs()[0]
    refusal(run.path / file, lambda: READERS[file](run))


def test_unparsable_plan_and_metrics_are_named(tmp_path: Path) -> None:
    lab: Lab = write_sweep(tmp_path, small(similarity=True))
    sweep = lab.sweep("placement")
    refusal(sweep.plan_path, sweep.plan)
    evaluation = next(lab.runs()[0].evaluations())
    refusal(evaluation.path / "metrics.json", evaluation.read)


def test_every_dataclass_is_frozen() -> None:
    assert not_frozen(records) == set()
