"""How to run a sweep again: one complete sweep file from its plan, and what it was run with."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml

from tread_lab.analysis.report.page import Sheet, sheet
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.provenance import provenance_differences, provenances_of
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.fields import with_fields

KEPT_EMPTY = ("baseline", "experiment")  # `null` means that there is none


class _Line(dict[str, Any]):
    """A mapping that is written as one `{...}`, whatever it holds."""


class _Dumper(yaml.SafeDumper):
    """Writes YAML as people do: without anchors, and a `_Line` in braces."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    _Line,
    lambda dumper, line: dumper.represent_mapping("tag:yaml.org,2002:map", line, flow_style=True),
)


@dataclass(frozen=True)
class Repetition:
    """All that it takes to run a sweep again, as the report shows it.

    Attributes:
        asked: the command of its last driver; empty where it is not recorded.
        where: the folder and the host in which it was given.
        commands: what gives the same runs from `file` alone.
        file: of the sweep, complete.
        data: where the data of its runs come from.
        setups: what runs were carried out with, and how many each; several are no fair comparison.
        differences: what makes the runs no fair comparison.
    """

    asked: str
    where: str
    commands: tuple[str, ...]
    file: str
    data: str
    setups: Sheet
    differences: list[str]

    @staticmethod
    def of(lab: Lab, folder: SweepFolder, plan: StoredPlan) -> Repetition:
        """Return how to repeat a sweep."""
        name, runs, driver = folder.name, list(plan.runs()), folder.command()
        return Repetition(
            asked=shlex.join(["tread-lab", *driver.words]) if driver else "",
            where=f"in {driver.folder} on {driver.host}" if driver else "",
            commands=(f"tread-lab sweep {name}.yaml --name {name}", f"tread-lab report {name}"),
            file=sweep_file(plan) if plan.sources else "",
            data=_data_text(plan),
            setups=setups(lab, runs),
            differences=list(map(str, provenance_differences(provenances_of(lab, runs)))),
        )


def sweep_file(plan: StoredPlan) -> str:
    """Return the sweep as one YAML file that writes out every field of its base run.

    `tread-lab sweep FILE` gives the same trials under the same signatures, whatever has become of
    the shipped experiment in the meantime.
    """
    tree = plan.sweep_file
    file = {
        **tree,
        "experiment": None,
        "fixed": _lines(with_fields(plan.base.get("run", {}), tree.get("fixed") or {}, "fixed")),
        "evaluate": list(map(_lines, plan.evaluations_as_written)),
        "sampler_axes": None,  # every evaluation is written
    }
    file = {k: v for k, v in file.items() if k in KEPT_EMPTY or v not in (None, {}, [], "")}
    first = [k for k in ("question", "experiment", "fixed") if k in file]
    ordered = {k: file[k] for k in (*first, *file)}
    return yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=96)


def setups(lab: Lab, runs: Iterable[str]) -> Sheet:
    """Return the distinct setups and how many runs had each, the commonest first.

    Several setups mean that the comparison is mixed.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    for run in runs:
        counts.update({_setup(attempt) for attempt in lab.run(run).origin()})
    rows = [(count, *setup) for setup, count in counts.most_common()]
    heads = ["runs", "commit of tread-lab", "Python", "device", "packages"]
    return sheet(pd.DataFrame(rows, columns=heads))


def _data_text(plan: StoredPlan) -> str:
    """Return `The data set fashion16 comes with tread-lab.`, or where the data were."""
    keys = ("source", "path", "digest")
    found = {tuple(str(trial.spec["data"].get(key) or "") for key in keys) for trial in plan.trials}
    texts = [
        f"The data were in {path}" + (f" (digest {digest[:12]})." if digest else ".")
        if path
        else f"The data set {source} comes with tread-lab."
        for source, path, digest in sorted(found)
    ]
    return " ".join(texts)


def _setup(attempt: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what an attempt was carried out with, `-dirty` where the working tree differed."""
    code = str(attempt.get("code") or "unknown")
    if attempt.get("diff") and not code.endswith("-dirty"):
        code += "-dirty"
    packages = sorted((attempt.get("packages") or {}).items())
    versions = ", ".join(f"{name} {version}" for name, version in packages)
    return code, str(attempt.get("python", "")), str(attempt.get("device", "")), versions


def _lines(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _Line(value) if isinstance(value, dict) else value for name, value in tree.items()
    }
