"""Everything else stands without a system: a copy of the repository without it passes its checks.

    python -m tests.systems.without              # each system; `make systems`
    python -m tests.systems.without mdt sprint   # some

The copy lacks the folder of the system, that of its tests, and its line in the table. It has to
pass lint, types, import contracts and all quick tests. A test that asks for the system itself fails
there by one error, which names what is not there; it counts as one of the system's own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tread_lab.specs.systems import SYSTEMS, load

ROOT = Path(__file__).parents[2]
TABLE = "tread_lab/specs/systems.py"
MISSING = "TREAD_LAB_MISSING"  # the expression that an error about the system matches
CHECKS = (
    ("ruff", "check", "--ignore", "I001", "."),  # imports of what is missing sort elsewhere
    ("mypy",),
    ("lint-imports", "--no-logo"),
    (*("pytest", "-q", "--numprocesses", "2", "-m", "not slow", "--tb=short", "-rf"),),
)


def copy_without(name: str, folder: Path) -> None:
    """Write the repository without a system."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    own = (f"tread_lab/systems/{name}/", f"tests/systems/{name}/")
    for path in filter(None, listed.split("\0")):
        if not path.startswith(own):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path, follow_symlinks=False)
    table = (folder / TABLE).read_text()
    without = re.sub(rf'^ *"{name}": \{{.*\n', "", table, flags=re.M)
    assert without != table
    (folder / TABLE).write_text(without)
    tree, git = [sys.executable, "tests/readme_tree.py"], ["git", "init", "--quiet"]
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    for line in (tree, git, ["git", "add", "--all"]):
        subprocess.run(line, cwd=folder, env=variables, check=True)


def errors_about(name: str) -> str:
    """Return an expression that matches the errors which say that a system is not here."""
    fields = SYSTEMS[name].classes
    kinds = [getattr(load(name, "spec", cls), "kind", None) for cls in fields.values()]
    told = [rf"tread_lab\.systems\.{name}\b", rf"tests\.systems\.{name}\b"]
    for kind in filter(None, kinds):
        told += [f"unknown kind '{kind}'", rf"'kind': '{kind}'.* is not valid under"]
    for field in (field for field, kind in zip(fields, kinds) if not kind):
        told += [f"joins a run by '{field}'", rf"\.{field}: .* is not valid under"]
    return "|".join(told)


def failed(name: str) -> Iterator[str]:
    """Yield the checks that fail without a system."""
    with tempfile.TemporaryDirectory(prefix=f"without-{name}-") as folder:
        copy_without(name, Path(folder))
        variables = {**os.environ, "PYTHONPATH": folder, MISSING: errors_about(name)}
        for command in CHECKS:
            more = ("-p", "tests.systems.without") if command[0] == "pytest" else ()
            line = [str(Path(sys.executable).parent / command[0]), *command[1:], *more]
            done = subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True)
            print(f"without {name}: {command[0]}: {done.stdout.strip().rpartition(chr(10))[2]}")
            if done.returncode:
                yield f"{command[0]}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # what a wrapper of pytest yields and returns has no type
    report = yield
    return _own(report)  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    return _own(report)  # type: ignore[misc]


def _own(report: pytest.TestReport) -> pytest.TestReport:
    """Return a report as skipped where it failed because the system is not here."""
    said = f"{report.longrepr}{report.capstderr}"
    if report.failed and re.search(os.environ.get(MISSING, "$^"), said):
        report.outcome, report.longrepr = "skipped", (__file__, 1, "Skipped: asks for the system")
    return report


if __name__ == "__main__":
    names = sys.argv[1:] or list(SYSTEMS.built_in)
    wrong = [f"without {name}: {check}" for name in names for check in failed(name)]
    print("\n".join(wrong) or f"without each of {', '.join(names)}: all checks pass")
    sys.exit(bool(wrong))
