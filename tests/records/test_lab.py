"""Claims about a lab and the folders of its runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frozen import not_frozen
from tests.sweep.plans import tiny
from tests.synthetic import small, write_sweep
from tread_lab import records
from tread_lab.config import UserError, encode, signature
from tread_lab.records.lab import Lab, with_parents
from tread_lab.records.run_folder import RunFolder

READERS: dict[str, Callable[[RunFolder], object]] = {
    "spec.yaml": RunFolder.spec,
    "result.json": RunFolder.state,
    "log.jsonl": RunFolder.entries,
    "attempts.jsonl": RunFolder.attempts,
    "keep_steps.json": RunFolder.kept_steps,
    "evaluation_defaults.json": RunFolder.evaluation_defaults,
}


def test_parent_by_name_becomes_its_spec(lab: Lab) -> None:
    spec = tiny()
    lab.run_of(spec).create(spec)
    assert with_parents({"init_from": signature(spec)}, lab) == {"init_from": {"run": encode(spec)}}
    start = {"run": signature(spec)[:6], "weights": "model"}
    written = with_parents({"variants": ({"init_from": start}, "a")}, lab)
    whole = {"variants": ({"init_from": {"run": encode(spec), "weights": "model"}}, "a")}
    assert written == whole == with_parents(whole, lab)
    written = with_parents({"init_from.run": signature(spec), "seed": 1}, lab)
    assert written == {"init_from.run": encode(spec), "seed": 1}
    with pytest.raises(UserError, match="no run 'ffff' in"):
        with_parents({"init_from": "ffff"}, lab)


def test_starting_file_gets_path_and_digest(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w.pt").write_bytes(b"weights")
    monkeypatch.setenv("HOME", str(tmp_path))
    for named in (str(tmp_path / "x" / ".." / "w.pt"), "~/w.pt"):
        start = {"file": named, "weights": "model"}
        digest = hashlib.sha256(b"weights").hexdigest()[:16]
        whole = {"file": str(tmp_path / "w.pt"), "weights": "model", "digest": digest}
        assert with_parents({"init_from": start}, lab) == {"init_from": whole}
        typed, whole_typed = ({f"init_from.{k}": v for k, v in t.items()} for t in (start, whole))
        assert with_parents({"fixed": typed}, lab) == {"fixed": whole_typed}
    with pytest.raises(UserError, match=r"init_from.file: cannot read .*absent: No such file"):
        with_parents({"init_from": {"file": str(tmp_path / "absent")}}, lab)


@pytest.mark.parametrize("file", [*READERS, "plan.json", "metrics.json"])
def test_unparsable_file_is_named(file: str, tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(similarity=True))
    run, sweep = lab.runs()[0], lab.sweep("placement")
    evaluation = next(run.evaluations())
    others: dict[str, tuple[Path, Callable[[], object]]] = {
        "plan.json": (sweep.plan_path, sweep.plan),
        "metrics.json": (evaluation.path / file, evaluation.read),
    }
    path, read = others.get(file) or (run.path / file, lambda: READERS[file](run))
    path.write_text("{a: [\n")
    with pytest.raises(UserError) as caught:
        read()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_every_dataclass_is_frozen() -> None:
    assert not_frozen(records) == set()
