"""The folder of one run: spec, attempts, log, checkpoints, evaluations, and the result."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tread_lab.config.decode import decode, encode
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import EvaluationDefaults, EvaluationSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.yaml_text import dump_yaml, load_yaml
from tread_lab.records.durable import (
    FORMAT,
    Entry,
    LogWriter,
    append_line,
    latest,
    of_format,
    read_entries,
    read_json,
    read_lines,
    write_json,
    write_text,
)
from tread_lab.records.locks import exclusive, is_held
from tread_lab.records.run_state import SENTENCES, Attempt, RunState, attempts_of

LOCK = ".claim"  # in the folder of a run or a sweep
EXPORTED = "model.safetensors"  # the weights in a folder that `tread-lab export` has written
CONFIG = "config.json"  # beside them: the network, the data and encoders that it saw
INFLUENCES = "influences.npz"  # beside an evaluation: of each image on its Frechet distances
DEFAULTS = "evaluation_defaults.json"  # of a run and of its exported weights
_CHECKPOINT = re.compile(r"step-(\d{8})-([0-9a-f]{16})\.safetensors")  # step and checksum


@dataclass(frozen=True)
class RunFolder:
    """The record of one run: spec, origin, attempts, log, checkpoints, evaluations, result."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def sibling(self, name: str) -> RunFolder:
        """Return the folder of another run of the same lab."""
        return RunFolder(self.path.parent / safe(name))

    @property
    def cache(self) -> Path:
        """Folder of shared caches of this lab."""
        return self._beside("cache")

    def _beside(self, name: str) -> Path:
        """Return a folder of the lab; weights that were exported have their own."""
        return (self.path if self.exported else self.path.parent.parent) / name

    def check_same_reference(self, name: str, digest: str, file: Path) -> None:
        """Refuse another file under the name of a used reference.

        Args:
            digest: SHA-256 of the file.
        """
        known = read_json(self._reference(name))
        if known is not None and known["sha256"] != digest:
            raise UserError(
                f"reference {name}: must be the file {known['file']} ({known['sha256'][:12]}...)"
                f" that this lab uses under this name, got {file} (SHA-256 {digest[:12]}...). Try"
                " another reference.name."
            )

    def keep_reference(self, name: str, digest: str, file: Path) -> None:
        """Record the file of a new reference name; refuse another file under a known name."""
        self.check_same_reference(name, digest, file)
        if not self._reference(name).exists():
            write_json(self._reference(name), {"sha256": digest, "file": str(file)})

    def _reference(self, name: str) -> Path:
        return self._beside("references") / f"{name}.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def averages(self) -> Path:
        """Folder of snapshots for post-hoc EMA."""
        return self.path / "averages"

    @property
    def exported(self) -> bool:
        """Whether this is a folder of exported weights."""
        return (self.path / EXPORTED).is_file() and (self.path / "spec.yaml").is_file()

    @property
    def log_path(self) -> Path:
        return self.path / "log.jsonl"

    def lock(self) -> AbstractContextManager[None]:
        """Lock the run against other writers until the block, or the process, ends."""
        return exclusive(self.path / LOCK, f"run {self.name}")

    @property
    def locked(self) -> bool:
        """Whether a process is working on this run."""
        return is_held(self.path / LOCK)

    def create(
        self,
        spec: RunSpec,
        defaults: EvaluationDefaults | None = None,
        keep_steps: Iterable[int] = (),
    ) -> None:
        """Write the resolved spec, evaluation defaults, and steps to keep.

        Existing defaults and steps to keep remain.
        """
        path, text = self.path / "spec.yaml", dump_yaml({"format": FORMAT, **encode(spec)})
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
        if defaults is not None and not (self.path / DEFAULTS).exists():
            write_json(self.path / DEFAULTS, encode(defaults))
        if new := set(keep_steps) - self.kept_steps():
            write_json(self.path / "keep_steps.json", sorted(self.kept_steps() | new))

    def evaluation_defaults(self) -> EvaluationDefaults:
        """Return the evaluation defaults of the run, or the class defaults.

        Raises:
            UserError: the file is damaged; names it.
        """
        path = self.path / DEFAULTS
        if not path.exists():
            return EvaluationDefaults()
        return decode(EvaluationDefaults, read_json(path), str(path))

    def spec(self) -> RunSpec:
        """Return the spec of the run.

        Raises:
            UserError: the file is missing, damaged or not a spec; names the file.
        """
        tree = self.spec_tree()
        if tree is None:
            raise UserError(
                f"{self.path / 'spec.yaml'}: must exist, got no file. Try repeating the `tread-lab`"
                " command that started this run."
            )
        try:
            return decode(RunSpec, tree)
        except UserError as error:
            raise UserError(f"{self.path / 'spec.yaml'}: {error}") from None

    def trained_with(self) -> dict[str, list[str]]:
        """Return the digests of frozen networks by name (`weights clip-large`), as used by attempts
        or by the exported run."""
        if self.exported:
            return dict((read_json(self.path / CONFIG) or {}).get("trained_with") or {})
        read = {fact: None for a in self.attempts() for fact in a.fingerprint.items()}
        found = dict[str, list[str]]()
        for name, digest in read:
            if name.startswith("weights "):
                found.setdefault(name, []).append(digest)
        return found

    def readable_spec(self) -> RunSpec | None:
        """Return the spec of the run, or `None` if it is missing or cannot be decoded."""
        try:
            return self.spec()
        except UserError:
            return None

    def spec_tree(self) -> dict[str, Any] | None:
        """Return the tree of the spec, or `None` without the file.

        Raises:
            UserError: invalid YAML or another format; names the file.
        """
        path = self.path / "spec.yaml"
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            return None
        return of_format(load_yaml(text, str(path)), path)

    def attempts(self) -> list[Attempt]:
        """Return all attempts in order."""
        return attempts_of(read_lines(self.attempts_path))

    @property
    def attempts_path(self) -> Path:
        return self.path / "attempts.jsonl"

    def open_attempt(self, **facts: Any) -> Attempt:
        """Start the next attempt."""
        attempt = Attempt(n=len(self.attempts()) + 1, time=time.time(), **facts)
        append_line(self.attempts_path, vars(attempt))
        return attempt

    def close_attempt(self, attempt: Attempt, ended: str, **facts: Any) -> Attempt:
        """Record how an attempt ended, a key of `SENTENCES`."""
        assert ended in SENTENCES, ended
        append_line(self.attempts_path, {"n": attempt.n, "ended": ended, **facts})
        return replace(attempt, ended=ended, **facts)

    def kept_steps(self) -> set[int]:
        """Return the steps whose checkpoints training must not remove."""
        return set(read_json(self.path / "keep_steps.json") or ())

    @property
    def stacks_path(self) -> Path:
        """File with the tracebacks of a hung attempt."""
        return self.path / "stacks.txt"

    def log(self) -> LogWriter:
        return LogWriter(self.log_path)

    def entries(self) -> list[Entry]:
        """Return one entry per (key, step), in order of steps."""
        return latest(read_entries(self.log_path))

    def origin(self) -> list[dict[str, Any]]:
        """Return the origin of each training attempt."""
        attempts = [attempt for attempt in self.attempts() if attempt.origin]
        return [{**a.origin, "started": a.time, "devices": a.devices} for a in attempts]

    def finish(self, state: RunState, **facts: Any) -> None:
        """Record the state in which training has ended, before any evaluation."""
        assert RunState(state).ended, state
        write_json(self.path / "result.json", {"state": state, **facts})

    def reopen(self) -> None:
        """Delete the terminal state, so that the run can resume."""
        (self.path / "result.json").unlink(missing_ok=True)

    def result(self) -> dict[str, Any] | None:
        """Return the terminal `RunState` and its facts, or `None` before the end."""
        result = read_json(self.path / "result.json")
        return None if result is None else {**result, "state": RunState(result["state"])}

    def step(self) -> int:
        """Return the recorded optimizer steps."""
        logged = (entry.step for entry in read_entries(self.log_path))
        step: int | None = (self.result() or {}).get("step")
        return max(logged, default=0) if step is None else step

    def state(self) -> RunState:
        """Return the state of the run by its record and its lock."""
        result = self.result()
        if result is not None:
            return RunState(result["state"])
        if self.locked:
            return RunState.RUNNING
        return RunState.INTERRUPTED if self.log_path.exists() else RunState.PENDING

    def evaluation(self, spec: EvaluationSpec) -> EvaluationFolder:
        return EvaluationFolder(self.path / "evaluations" / signature(spec))

    def evaluations(self) -> Iterator[EvaluationFolder]:
        """Yield every finished evaluation, at any step."""
        folder = f"{self.path}/evaluations"  # of each run of a sweep: a glob takes twice as long
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():  # noqa: PTH208, PTH112
            if os.path.exists(f"{folder}/{name}/metrics.json"):  # noqa: PTH110
                yield EvaluationFolder(Path(folder, name))

    def end_evaluations(self) -> Iterator[EvaluationFolder]:
        """Yield the finished evaluations of the run's last weights."""
        for evaluation in self.evaluations():
            if (tree := evaluation.read()) and tree["spec"].get("step") is None:
                yield evaluation


def safe(name: str) -> str:
    """Return `name` if it is a valid file name.

    Raises:
        UserError: an invalid name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", name):
        allowed = "letters, digits, '-', '_', '+' and '.'"
        raise UserError(f"name: must be {allowed}, got {name!r}. Try --name my_sweep.")
    return name


@dataclass(frozen=True)
class EvaluationFolder:
    """One evaluation of a run: its spec, its numbers (written last), its arrays and pictures."""

    path: Path

    def write(self, spec: EvaluationSpec, metrics: dict[str, float], **facts: Any) -> None:
        write_json(self.path / "metrics.json", {"spec": encode(spec), "metrics": metrics, **facts})
        os.utime(self.path.parent)  # readers go by its time, which a file below it leaves

    def read(self) -> dict[str, Any] | None:
        """Return `{spec, metrics, ...}`, or `None` until the evaluation is complete."""
        tree: dict[str, Any] | None = read_json(self.path / "metrics.json")
        return tree

    @property
    def step(self) -> int | None:
        """Evaluated step of the run, `None` for its end."""
        return tree["spec"].get("step") if (tree := self.read()) else None

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        return self.read() is not None


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the files of checkpoints, newest step first."""
    paths = [path for path in folder.glob("step-*.safetensors") if _CHECKPOINT.fullmatch(path.name)]
    return sorted(paths, key=lambda path: path.name, reverse=True)


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's name."""
    return int(path.name.split("-")[1])
