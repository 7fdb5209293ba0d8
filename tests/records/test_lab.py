"""Claims about a lab: where everything lies, and what its files hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.sweep.plans import tiny
from tread_lab.config import (
    GuidanceSpec,
    HeldoutSpec,
    RunSpec,
    SamplerSpec,
    SamplesSpec,
    UserError,
    decode,
    encode,
    signature,
)
from tread_lab.config.cell import Trial
from tread_lab.config.evaluation import EvaluationDefaults
from tread_lab.config.guidance import BranchSpec
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab, with_parents
from tread_lab.records.run_state import RunState
from tread_lab.records.stored_plan import StoredPlan
from tread_lab.records.sweep_folder import Suggestion

SPEC = decode(RunSpec, {"model": "DiT-S/2", "routes": ["2->8"]})


def test_what_a_system_leaves_among_the_runs_is_no_run(lab: Lab) -> None:
    assert lab.runs() == []
    for name in ("b", "a", ".trash"):
        (lab.root / "runs" / name).mkdir(parents=True)
    for name in (".DS_Store", "notes.txt"):
        (lab.root / "runs" / name).touch()
    assert [run.name for run in lab.runs()] == ["a", "b"]


def test_the_lab_is_where_the_user_says_else_where_the_variable_says_else_here(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Lab.at().root == in_folder / "lab" and Lab.at("x").root == in_folder / "x"
    assert Lab("x").root == Path("x")  # type: ignore[arg-type]
    monkeypatch.setenv("TREAD_LAB_ROOT", "/y")
    assert (Lab.at().root, Lab.at("x").root) == (Path("/y"), in_folder / "x")
    monkeypatch.setenv("TREAD_LAB_ROOT", "")
    assert Lab.at().root == in_folder / "lab"


def test_a_lab_that_is_only_read_must_be_a_folder(in_folder: Path) -> None:
    with pytest.raises(UserError, match=r"/x is no such folder"):
        Lab.existing("x")
    (in_folder / "x").touch()
    with pytest.raises(UserError, match="/x is a file"):
        Lab.existing("x")
    (in_folder / "y").mkdir()
    assert Lab.existing("y").root == in_folder / "y"


def test_mlflows_store_lies_in_the_lab_unless_the_user_names_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert lab.mlflow_uri == f"sqlite:///{lab.root}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://x")
    assert lab.mlflow_uri == "http://x"


def test_a_run_is_known_by_the_start_of_its_name_if_one_has_it(lab: Lab) -> None:
    for name in ("abc1", "abd2"):
        lab.run(name).path.mkdir(parents=True)
    assert lab.known_run("abc").name == "abc1"
    with pytest.raises(UserError, match=r"2 runs match 'ab' in .*`tread-lab status` lists them"):
        lab.known_run("ab")
    with pytest.raises(UserError, match="no run 'x' in"):
        lab.known_run("x")
    write_text(lab.sweep("rates").plan_path, "{}")
    with pytest.raises(UserError, match=r"no sweep 'rate' in .*, did you mean 'rates'"):
        lab.known_sweep("rate")
    assert lab.sweeps() == ["rates"]
    for named in ("rates", "rates.yaml", "sweeps/rates.yml"):
        assert lab.known_sweep(named).name == "rates"


def test_a_state_follows_from_the_result_the_lock_and_the_log(lab: Lab) -> None:
    run = lab.run("abc")
    assert run.state() == "pending" and not run.locked and run.result() is None
    assert run.step() == 0
    with run.lock():
        assert run.state() == "running" and run.locked
    assert run.path.exists() and run.state() == "pending"
    with run.log() as log:
        for step in (1, 3):
            log(step, loss=1.0)
    assert (run.state(), run.step()) == ("interrupted", 3)
    with run.log() as log:
        log(3, loss=2.0)  # once more
    assert [(entry.step, entry.value) for entry in run.entries()] == [(1, 1.0), (3, 2.0)]
    run.finish(RunState.COMPLETED, step=0)
    assert run.step() == 0
    run.finish(RunState.DIVERGED, step=2, reason="nan")
    assert (run.state(), run.step(), (run.result() or {})["reason"]) == ("diverged", 2, "nan")
    with run.lock():
        assert run.state() == "diverged"
    run.reopen()
    run.reopen()
    assert run.state() == "interrupted"


def test_steps_to_keep_are_added(lab: Lab) -> None:
    run = lab.run_of(tiny())
    assert run.kept_steps() == set()
    for steps in ([20, 5], [5], [7]):
        run.create(tiny(), keep_steps=steps)
    assert run.kept_steps() == {5, 7, 20}


def test_evaluations_of_the_end_are_those_that_name_no_step(lab: Lab) -> None:
    run, end, early = lab.run("abc"), HeldoutSpec(), HeldoutSpec(step=5)
    for spec in (end, early):
        run.evaluation(spec).write(spec, {"heldout/loss": 1.0})
    assert sorted(e.step or 0 for e in run.evaluations()) == [0, 5]
    assert [e.path for e in run.end_evaluations()] == [run.evaluation(end).path]


def test_a_run_keeps_the_defaults_of_its_first_command(lab: Lab) -> None:
    run, named = lab.run("abc"), ReferenceSpec(name="coco", path="/coco.npz")
    assert run.evaluation_defaults() == EvaluationDefaults()
    first = EvaluationDefaults(sampler={"steps": 6, "guidance": 2}, reference=named)
    first = first.with_probes([HeldoutSpec(images=8, step=5)])
    for defaults in (first, EvaluationDefaults(sampler={"steps": 9})):
        run.create(SPEC, defaults)
        assert run.evaluation_defaults() == first
    assert first.without_folders().reference == ReferenceSpec(name="coco")
    write_text(run.path / "evaluation_defaults.json", "{")
    with pytest.raises(UserError, match=r"evaluation_defaults\.json"):
        run.evaluation_defaults()


def test_measurements_of_a_former_end_are_not_those_of_the_end(lab: Lab) -> None:
    run, spec = lab.run("abc"), HeldoutSpec()
    run.evaluation(spec).write(spec, {"heldout/loss": 2.0}, step=8)
    assert run.evaluation(spec).done
    run.finish(RunState.COMPLETED, step=20)
    assert not run.evaluation(spec).done
    run.evaluation(spec).write(spec, {"heldout/loss": 1.0}, step=20)
    run.reopen()
    run.finish(RunState.FAILED)
    run.finish(RunState.COMPLETED, step=20)
    assert run.evaluation(spec).done
    run.evaluation(spec).write(spec, {"heldout/loss": 2.0}, step=8)
    assert not run.evaluation(spec).done and list(run.end_evaluations()) == []


@pytest.mark.parametrize(
    ("weak", "weights", "done"), [(None, (4, 8), False), (6, (4, 6), True), (None, (4, 20), True)]
)
def test_an_evaluation_whose_first_branch_names_a_step_is_of_its_last_weights(
    weak: int | None, weights: tuple[int, ...], done: bool, lab: Lab
) -> None:
    run, branches = lab.run("abc"), (BranchSpec(step=4), BranchSpec(step=weak))
    guidance = GuidanceSpec(weight=2.0, strong=branches[0], weak=branches[1])
    spec = SamplesSpec(sampler=SamplerSpec(guidance=guidance))
    run.evaluation(spec).write(spec, {}, step=4, weights={str(step): "" for step in weights})
    run.finish(RunState.COMPLETED, step=20)
    assert run.evaluation(spec).done == done


def test_a_plan_holds_what_a_search_has_suggested(lab: Lab) -> None:
    folder = lab.sweep("s")
    with pytest.raises(UserError, match="sweep s has no plan in"):
        folder.plan()
    trials = [Trial("trial", {}, 0, {}, run, None) for run in ("a", "b")]
    write_text(folder.plan_path, StoredPlan("s", "", "", (trials[0],), (), {}).text())
    assert not folder.driven
    with folder.lock():
        assert folder.driven
    suggestion = Suggestion(0, {}, tuple(trials))
    folder.add_suggestion(suggestion)
    assert [trial.run for trial in folder.plan().trials] == ["a", "b"]
    assert [trial.run for trial in (folder.stored_plan() or folder.plan()).trials] == ["a"]


def test_a_folder_of_exported_weights_has_its_own_references(lab: Lab) -> None:
    run = lab.run("abc")
    for name in ("model.safetensors", "spec.yaml"):
        assert not run.exported
        write_text(run.path / name, "x")
    run.keep_reference("coco", "a" * 64, Path("/x/coco.npz"))
    assert run.exported and (run.path / "references" / "coco.json").exists()


def test_a_parent_by_name_keeps_which_weights_are_taken(lab: Lab) -> None:
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


def test_a_file_that_a_run_starts_from_gets_its_whole_path_and_its_digest(
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


def test_another_file_under_the_name_of_a_reference_is_refused(tmp_path: Path) -> None:
    run, file = Lab(tmp_path).run("3f2a"), tmp_path / "references" / "coco.json"
    run.check_same_reference("coco", "b" * 64, Path("/y/coco.npz"))  # which keeps none
    run.keep_reference("coco", "a" * 64, Path("/x/coco.npz"))
    record = json.loads(file.read_text())
    assert (record["sha256"], record["file"]) == ("a" * 64, "/x/coco.npz")
    run.keep_reference("coco", "a" * 64, Path("/y/coco.npz"))
    run.keep_reference("other", "b" * 64, Path("/y/other.npz"))
    assert json.loads(file.read_text())["file"] == "/x/coco.npz"
    with pytest.raises(UserError) as refusal:
        run.keep_reference("coco", "b" * 64, Path("/y/coco.npz"))
    assert str(refusal.value).startswith(
        "reference coco: /y/coco.npz (SHA-256 bbbbbbbbbbbb...) is another file than /x/coco.npz"
        " (aaaaaaaaaaaa...), which evaluations of this lab compare with under this name;"
    )
