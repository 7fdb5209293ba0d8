"""Removal of a sweep or a run from a lab: what would be lost, what stays, and the deed itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.signature import signature
from tread_lab.specs.units import amount, counted


@dataclass(frozen=True)
class Removal:
    """What removing a sweep, or one run, would take away.

    Attributes:
        sweep: the sweep's folder, `None` where a run alone is removed.
        runs: the folders of the trials' runs that nothing else needs.
        kept: by run of the sweep, what needs it: other sweeps, or runs that started from it.
        parents: runs that are no trials of the sweep, and from which its trials started.
    """

    name: str
    sweep: SweepFolder | None
    runs: tuple[RunFolder, ...]
    kept: Mapping[str, tuple[str, ...]]
    parents: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        folders = [run.path for run in self.runs] + ([self.sweep.path] if self.sweep else [])
        files = (path for folder in folders for path in folder.rglob("*"))
        return sum(path.lstat().st_size for path in files if not path.is_dir())

    def lines(self) -> list[str]:
        """Return what would be lost, and what stays, for people."""
        what = ["its plan and figures"] if self.sweep else []
        what += [counted(len(self.runs), "run")] if self.runs else []
        lines = [f"{self.name} loses {' and '.join(what)} ({amount(self.bytes)})"]
        if self.kept:
            users = dict.fromkeys(user for users in self.kept.values() for user in users)
            stay = "stays" if len(self.kept) == 1 else "stay"
            lines.append(f"{counted(len(self.kept), 'run')} {stay} for {', '.join(users)}")
        lines += [
            f"run {run}, where others started, stays; afterwards `tread-lab rm {run}` removes it"
            for run in self.parents
        ]
        return lines


def removal_of(lab: Lab, name: str) -> Removal:
    """Return what removing a sweep, or the run whose name begins so, would take away.

    Raises:
        UserError: there is none, somebody works at it, a sweep needs the run, or the plan of
            another sweep cannot be read, so that nobody knows what it needs.
    """
    sweep = lab.sweep(name) if name in lab.sweeps() else None
    plan = sweep.plan() if sweep else None
    own = _planned(sweep) if sweep else [lab.known_run(name).name]
    own = [*dict.fromkeys(own)]  # a run may stand for several trials
    users = _users(lab, own, without=name)
    if sweep is None and users:
        needed = ", ".join(users[own[0]])
        raise UserError(f"run {own[0]} is needed by {needed}; remove that first")
    runs = tuple(lab.run(run) for run in own if run not in users and lab.run(run).path.exists())
    others = [run for run in plan.runs() if run not in own] if plan else []
    used = _users(lab, [*own, *others], without=name)  # by what the removal leaves
    parents = tuple(run for run in others if run not in used and lab.run(run).path.exists())
    return Removal(sweep.name if sweep else runs[0].name, sweep, runs, users, parents)


def remove(removal: Removal) -> None:
    """Remove runs, then the sweep; what was cut off is done by the same command.

    Raises:
        Busy: somebody has begun to work at one of them.
    """
    if removal.sweep is None:
        _remove_runs(removal.runs)
        return
    with removal.sweep.lock():
        _remove_runs(removal.runs)
        delete(removal.sweep.path)


def _remove_runs(runs: Iterable[RunFolder]) -> None:
    for run in runs:
        with run.lock():
            delete(run.path)


def delete(path: Path) -> None:
    """Delete a folder with all that is in it, or a file that may be gone already.

    Raises:
        UserError: it cannot be deleted; names it.
    """
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot remove {path}: {error.strerror or error}") from None


def _users(lab: Lab, runs: Iterable[str], *, without: str) -> dict[str, tuple[str, ...]]:
    """Return by run what else needs it: sweeps that plan it, and runs outside that began from it.

    Raises:
        UserError: the plan of a sweep cannot be read.
    """
    own, users = {*runs}, dict[str, dict[str, None]]()
    for name in lab.sweeps():
        planned, specs = _planned(lab.sweep(name)), lab.sweep(name).plan().runs()
        starts = ((tree.get("init_from") or {}).get("file") for tree in specs.values())
        sources = (_run_with(lab, file) for file in starts)
        for run in (*planned, *specs, *sources) if name != without else ():
            if run in own:
                users.setdefault(run, {})[f"sweep {name}"] = None
    for folder in lab.runs():
        spec = folder.readable_spec() if folder.name not in own else None
        if spec is None or spec.init_from is None:
            continue
        for parent in (_run_with(lab, spec.init_from.file), *map(signature, spec.ancestors)):
            if parent in own:
                users.setdefault(parent, {})[f"run {folder.name}"] = None
    return {run: tuple(names) for run, names in users.items()}


def _planned(sweep: SweepFolder) -> list[str]:
    """Return the runs of a sweep's trials, those of cells that have left its file among them."""
    left = (run for cells in sweep.history() for runs in cells.values() for run in runs)
    return [*(trial.run for trial in sweep.plan().trials), *left]


def _run_with(lab: Lab, file: str | None) -> str | None:
    """Return the run of this lab whose checkpoint a file is, `None` for none."""
    folder = None if file is None else Path(file).parent.parent
    return folder.name if folder and folder.parent == (lab.root / "runs").resolve() else None
