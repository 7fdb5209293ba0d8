"""Removal of a sweep or a run from a lab: what would be lost, what stays, and the deed itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tread_lab.config.errors import UserError
from tread_lab.config.signature import signature
from tread_lab.config.units import amount, counted
from tread_lab.records.durable import writing
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.sweep_folder import SweepFolder


@dataclass(frozen=True)
class Removal:
    """The effect of removing a sweep or one run.

    Attributes:
        sweep: folder of the sweep; `None` if only a run is removed.
        runs: folders of runs that nothing else uses.
        kept: run -> its other users: sweeps, or runs that started from it.
    """

    name: str
    sweep: SweepFolder | None
    runs: tuple[RunFolder, ...]
    kept: Mapping[str, list[str]]

    def lines(self) -> list[str]:
        """Return lines about what would be removed and kept."""
        folders = [run.path for run in self.runs] + ([self.sweep.path] if self.sweep else [])
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        what = ["its plan and figures"] if self.sweep else []
        what += [counted(len(self.runs), "run")] if self.runs else []
        size = amount(sum(path.lstat().st_size for path in files))
        users = dict.fromkeys(user for users in self.kept.values() for user in users)
        kept = f"kept: {counted(len(self.kept), 'run')}, for {', '.join(users)}"
        return [f"{self.name} loses {' and '.join(what)} ({size})", *([kept] if users else [])]


def removal_of(lab: Lab, name: str) -> Removal:
    """Return the effect of removing a sweep, or the run with this prefix.

    Raises:
        UserError: nothing to remove, a run in use, or an unreadable plan of another sweep.
    """
    sweep = lab.sweep(name) if name in lab.sweeps() else None
    own = _runs(sweep) if sweep else [lab.known_run(name).name]
    users = _users(lab, own, without=name)
    if sweep is None and users:
        needed = ", ".join(users[own[0]])
        raise UserError(
            f"run {own[0]}: must not be in use, got use by {needed}. Try removing {needed} first."
        )
    runs = tuple(lab.run(run) for run in own if run not in users and lab.run(run).path.exists())
    return Removal(sweep.name if sweep else own[0], sweep, runs, users)


def remove(removal: Removal) -> None:
    """Remove runs, then the sweep; rerun after an interruption.

    Raises:
        Busy: another process uses one of them.
        UserError: names a folder that cannot be deleted.
    """
    folders: list[RunFolder | SweepFolder] = [*removal.runs]
    for folder in folders + ([removal.sweep] if removal.sweep else []):
        with folder.lock(), writing(folder.path):
            shutil.rmtree(folder.path)


def _users(lab: Lab, own: Iterable[str], *, without: str) -> dict[str, list[str]]:
    """Return by run what else needs it: sweeps that plan it, and runs outside that began from it.

    Raises:
        UserError: the plan of a sweep cannot be read.
    """
    needs: dict[str, Iterable[str | None]] = {}
    for name in lab.sweeps():
        starts = (tree.get("init_from") or {} for tree in lab.sweep(name).plan().runs().values())
        files = (_run_with(lab, start.get("file")) for start in starts)
        needs[f"sweep {name}"] = () if name == without else (*_runs(lab.sweep(name)), *files)
    for folder in lab.runs():
        spec = folder.readable_spec() if folder.name not in own else None
        if spec is not None and spec.init_from is not None:
            parents = map(signature, spec.ancestors)
            needs[f"run {folder.name}"] = (*parents, _run_with(lab, spec.init_from.file))
    found = {run: [user for user, runs in needs.items() if run in runs] for run in own}
    return {run: users for run, users in found.items() if users}


def _runs(sweep: SweepFolder) -> list[str]:
    """Return the runs of a sweep, their parents and those of cells that have left its file."""
    left = (run for cells in sweep.history() for runs in cells.values() for run in runs)
    return list(dict.fromkeys((*sweep.plan().runs(), *left)))


def _run_with(lab: Lab, file: str | None) -> str | None:
    """Return the run of this lab whose checkpoint a file is, `None` for none."""
    folder = None if file is None else Path(file).parent.parent
    return folder.name if folder and folder.parent == (lab.root / "runs").resolve() else None
