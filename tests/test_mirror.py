"""Tests lie where the tree says, the longest start first, and what did not run is named."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST, not_run

ROOT = Path(__file__).parents[1]

# Tests of the whole program, or of what is no module.
WHOLE = ("conformance", "docs", "end_to_end", "faults", "seeing")

# Tests of what several modules do together.
SPANNING = {
    "test_benchmarks.py",
    "analysis/notebooks/test_stored_notebooks.py",
    "backbones/test_names.py",
    "engine/test_guided_evaluation.py",
    "engine/test_on_devices.py",
    "sweep/search/test_search_on_grid.py",
    "sweep/test_guidance_sweep.py",
    "systems/test_bypasses.py",
    "tasks/test_edit.py",
    "test_docker.py",
    "test_malformed.py",
    "test_mirror.py",
    "test_readme.py",
    "test_trust.py",
    "tracking/test_live_server.py",
}


def test_every_test_file_is_named_after_a_module_or_its_package() -> None:
    unnamed = {test for test in mirrored() if not mirrors(Path(test))}
    assert unnamed == SPANNING


def test_a_test_file_without_a_module_is_noticed() -> None:
    assert mirrors(Path("routing/test_select.py"))  # tread_lab/routing/select.py
    assert mirrors(Path("routing/test_routing.py"))  # all of tread_lab/routing
    assert not mirrors(Path("routing/test_choice.py"))
    assert not mirrors(Path("test_select.py"))


def test_the_files_that_start_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).exists()] == []


def test_skipped_tests_are_grouped_by_reason_with_the_mend() -> None:
    skipped = [("a.py", "needs Chromium"), ("b.py", "needs Chromium"), ("c.py", "no such thing")]
    assert not_run(skipped) == [
        "2 not run: needs Chromium (a.py, b.py); to run them: apt-get install chromium",
        "1 not run: no such thing (c.py)",
    ]


def mirrored() -> list[str]:
    """Return every test file that should mirror the tree, relative to `tests`."""
    paths = (path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py"))
    return [path.as_posix() for path in paths if path.parts[0] not in WHOLE]


def mirrors(test: Path) -> bool:
    """Return whether a test file, relative to `tests`, names a module or the package around it."""
    package, name = ROOT / "tread_lab" / test.parent, test.stem.removeprefix("test_")
    if not (package / "__init__.py").is_file():
        return False
    inner = (package / name / "__init__.py").is_file()
    return (package / f"{name}.py").is_file() or inner or name == package.name
