"""A lab: the folder of all runs and sweeps, found there by their names, and the status of runs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.config.decode import encode
from tread_lab.config.errors import UserError, suggest
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.records.durable import modified
from tread_lab.records.run_folder import EXPORTED, RunFolder, safe
from tread_lab.records.run_state import (
    ENDED_WELL,
    Attempt,
    RunState,
    state_in_sweep,
    stop_reason,
)
from tread_lab.records.sweep_folder import SweepFolder


@dataclass(frozen=True)
class Lab:
    """The folder of all runs and sweeps; `--root` or TREAD_LAB_ROOT, else `./lab`."""

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))  # in a notebook one writes a text

    @staticmethod
    def at(root: str | os.PathLike[str] | None = None) -> Lab:
        return Lab(Path(root or os.environ.get("TREAD_LAB_ROOT") or "lab").absolute())

    @staticmethod
    def existing(root: str | os.PathLike[str] | None = None) -> Lab:
        """Return the lab at `root`, for commands that only read it.

        Raises:
            UserError: the folder does not exist.
        """
        lab = Lab.at(root)
        if not lab.root.is_dir():
            what = "a file" if lab.root.exists() else "no such folder"
            raise UserError(
                f"--root: must be the folder of a lab, got {lab.root} ({what}). Try --root FOLDER,"
                " or run a sweep first."
            )
        return lab

    @property
    def mlflow_uri(self) -> str:
        """MLFLOW_TRACKING_URI where set, else the SQLite store of this lab."""
        return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.root / 'mlflow.db'}"

    def run(self, name: str) -> RunFolder:
        """Return the folder of the run with signature `name`, whether it exists or not."""
        return RunFolder(Path(f"{self.root}/runs/{safe(name)}"))  # often: parsed at once

    def run_of(self, spec: RunSpec) -> RunFolder:
        return self.run(signature(spec))

    def sweep(self, name: str) -> SweepFolder:
        """Return the folder of the sweep `name`, whether it exists or not."""
        return SweepFolder(self.root / "sweeps" / safe(name))

    def known_sweep(self, name: str) -> SweepFolder:
        """Return the folder of a stored sweep.

        Raises:
            UserError: unknown sweep; suggests a near name.
        """
        folder = self.sweep(Path(name).stem if name.endswith((".yaml", ".yml")) else name)
        if not folder.plan_path.exists():
            raise UserError(f"no sweep {name!r} in {self.root}{suggest(name, self.sweeps())}")
        return folder

    def known_run(self, name: str) -> RunFolder:
        """Return the folder of a run on record; an unambiguous prefix of its name is enough."""
        runs = [p.name for p in sorted((self.root / "runs").glob(f"{safe(name)}*"))]
        if len(runs) != 1:
            what = "no run" if not runs else f"{len(runs)} runs match"
            raise UserError(f"{what} {name!r} in {self.root}. Try `tread-lab status`.")
        return self.run(runs[0])

    def known(self, name: str) -> SweepFolder | RunFolder:
        """Return the folder of a stored sweep, or of the run with this prefix.

        Raises:
            UserError: unknown run or sweep; suggests a near name.
        """
        if name in self.sweeps() or not re.fullmatch("[0-9a-f]+", name):
            return self.known_sweep(name)
        return self.known_run(name)

    def runs(self) -> list[RunFolder]:
        """Return the folders of all runs on record, by name."""
        paths = sorted((self.root / "runs").glob("[!.]*"))
        return [RunFolder(path) for path in paths if path.is_dir()]

    def sweeps(self) -> list[str]:
        """Return the names of all planned sweeps."""
        return sorted(path.parent.name for path in self.root.glob("sweeps/*/plan.json"))


def with_parents(tree: Any, lab: Lab) -> Any:
    """Return the tree with complete specs of parents named by (a prefix of) their signature, and
    with digests of starting files.

    Raises:
        UserError: an unknown or ambiguous run, or an unreadable file.
    """
    if isinstance(tree, list | tuple):
        return type(tree)(with_parents(item, lab) for item in tree)
    if not isinstance(tree, Mapping):
        return tree
    written = {key: with_parents(value, lab) for key, value in tree.items()}
    start = written.get("init_from")
    if isinstance(start, str):
        start = {"run": start}
    if isinstance(start, dict):
        written["init_from"] = _whole_start(start, lab)
    dotted = {key: value for key, value in written.items() if str(key).startswith("init_from.")}
    typed = {key.removeprefix("init_from."): value for key, value in dotted.items()}
    kept = {key: value for key, value in written.items() if key not in dotted}
    return kept | {f"init_from.{key}": x for key, x in _whole_start(typed, lab).items()}


def _whole_start(start: Mapping[str, Any], lab: Lab) -> dict[str, Any]:
    """Return a start with the spec of its parent, or with the whole path and digest of its file."""
    if isinstance(start.get("run"), str):
        return {**start, "run": encode(lab.known_run(start["run"]).spec())}
    if not isinstance(start.get("file"), str):
        return dict(start)
    path = Path(start["file"]).expanduser().resolve()
    named = {**start, "file": str(path), "digest": digest_of(path)}
    if _is_unlabelled(path):
        named["unlabelled"] = True
    return named


def _is_unlabelled(path: Path) -> bool:
    """Return whether a file is the export of a run that saw no class."""
    folder = RunFolder(path.parent)
    spec = folder.readable_spec() if folder.exported and path.name == EXPORTED else None
    return spec is not None and not spec.may_know("class")


def digest_of(path: Path) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(f"init_from.file: cannot read {path}: {error.strerror}") from None


@dataclass(frozen=True)
class RunStatus:
    """Status of a run.

    Attributes:
        kind: kind of its failure, or of the end of its last attempt.
        reason: one line; empty if nothing went wrong.
        step: logged optimizer steps.
        moved: time of the last record, in seconds; `None` before the first attempt.
    """

    run: str
    state: RunState
    kind: str
    reason: str
    attempts: tuple[Attempt, ...]
    step: int
    moved: float | None


def run_status(folder: RunFolder, stopped: Mapping[str, int] | None = None) -> RunStatus:
    """Read the status of a run.

    Args:
        stopped: runs that the sweep has stopped early, with their steps.
    """
    result, state, step = folder.result() or {}, folder.state(), folder.step()
    attempts = tuple(folder.attempts())
    kind, reason = result.get("kind", ""), result.get("reason", "")
    if attempts and attempts[-1].ended not in ("", *ENDED_WELL) and not reason:
        kind, reason = attempts[-1].ended, attempts[-1].reason
    if stopped and state_in_sweep(state, folder.name, stopped) is not state:
        step = stopped[folder.name]
        state, kind, reason = RunState.STOPPED, "early", stop_reason(step)
    line = (str(reason).strip().splitlines() or [""])[0]
    written = map(modified, (folder.attempts_path, folder.log_path, folder.path / "result.json"))
    moved = max(filter(None, written), default=None)
    return RunStatus(folder.name, state, kind, line, attempts, step, moved)


def run_states(
    lab: Lab, runs: Iterable[str], stopped: Mapping[str, int] | None = None
) -> dict[str, RunState]:
    """Return the state of each run.

    Args:
        stopped: runs that the sweep has stopped early.
    """
    return {run: state_in_sweep(lab.run(run).state(), run, stopped or {}) for run in runs}
