"""The package of the page: a sweep trains with its kinds, records name it, its absence is a line.

Its backbone has long skips, and its system a loss, a network beside the one that is sampled, and a
cost; all of it by the public protocol alone.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, section
from tests.engine.runs import last_checkpoint
from tests.faults.drivers import Zygote
from tests.packages import write_metadata
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState

SECTION = section(DOCS / "add_your_own.md", "In a package of your own")
PAGE = {block.title: block.text for block in SECTION}
# A metric, a solver and a schedule beside what the page shows.
MORE = """
from tread_lab.specs.metrics import Metric, MetricKind

MEAN_GAP = Metric(
    features="any", kind=MetricKind("quality", "lower", label="gap of means"), code="our_more:gap"
)


def gap(compared):
    means = [layers["pool"].mean(dim=0) for layers in (compared.generated, compared.reference)]
    return float((means[0] - means[1]).norm())


def leapfrog(velocity, z_BCHW, levels):
    for now, then in zip(levels, levels[1:]):
        z_BCHW = z_BCHW + (then - now) * velocity(z_BCHW, now)
    return z_BCHW


def half(done):
    return 0.5
"""
ENTRY_POINTS = {
    "tread_lab.metrics": {"mean_gap": "our_more:MEAN_GAP"},
    "tread_lab.solvers": {"leapfrog": "our_more:leapfrog"},
    "tread_lab.schedules": {"half": "our_more:half"},
}
SAMPLES = "{metrics:[mean_gap],count:100,sampler:{solver:leapfrog,steps:2}}"
WITH_MORE = (
    f"train.schedule=half evaluate=[{{heldout_loss:{{images:16,levels:2}}}},{{samples:{SAMPLES}}}]"
)


def install(folder: Path, version: str) -> None:
    """Write the package of the page as an installer leaves it."""
    project = tomllib.loads(PAGE["pyproject.toml"])["project"]
    for title, text in PAGE.items():
        if title.startswith("our_tread/"):
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(text)
    (folder / "our_more.py").write_text(MORE)
    groups = {**project["entry-points"], **ENTRY_POINTS}
    lines = [f"[{g}]\n" + "".join(f"{n} = {r}\n" for n, r in e.items()) for g, e in groups.items()]
    write_metadata(folder, "\n".join(lines), name=project["name"], version=version)


# The process that commands are forked from has looked at the installed packages already.
FOUND = """
import sys
from tread_lab.specs.extensions import installed
from tests.faults.tricks import without_extras
sys.path.insert(0, {site!r})
installed.cache_clear()
without_extras()
"""


def tread_lab(zygote: Zygote, folder: Path, line: str, *, code: int = 0) -> str:
    """Run a command where the package is found; return what it answers, or its error."""
    done = zygote.run(folder, *line.split(), prelude=FOUND.format(site=str(folder / "site")))
    assert done.returncode == code, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stderr if code else done.stdout


@pytest.mark.slow
def test_a_sweep_with_a_package_of_our_own(tmp_path: Path, zygote: Zygote) -> None:
    site, sweep = tmp_path / "site", f"sweep ours.yaml --executor inline --no-mlflow {WITH_MORE}"
    site.mkdir()
    install(site, "1.0")
    (tmp_path / "ours.yaml").write_text(PAGE["ours.yaml"])
    ranking = tread_lab(zygote, tmp_path, sweep)
    assert "mean_gap[fashion16-v1]@100" in ranking and "1->2 by left s=0.5" in ranking
    assert "1->2 by left s=0.5 kind=means weight=0.25" in ranking
    assert_made_with(Lab(tmp_path / "lab"), version="1.0")
    cost = json.loads(tread_lab(zygote, tmp_path, "cost model=pool-4x16/2 loss.kind=means --json"))
    skips = 2 * 16 * 16  # blocks 2 and 3 of 4 read blocks 1 and 0
    assert (cost["model"], cost["parameters"]) == ("pool-4x16/2", 8452 + skips)
    assert cost["dense_macs"] == 80640 + 64 * skips
    assert cost["train_flops_per_image"] == 6 * (cost["dense_macs"] + 16)
    line = tread_lab(zygote, tmp_path, "cost model=pool-4x16/2 loss.kind=maens", code=2)
    assert "loss: unknown kind 'maens', did you mean 'means'?" in line

    install(site, "1.1")
    marked = tread_lab(zygote, tmp_path, f"{sweep} seeds=[0,1]")
    assert "package our-tread differs: 1.0 in 4 runs, 1.1 in 4 runs" in marked

    (site / "our_tread.dist-info" / "entry_points.txt").unlink()
    assert tread_lab(zygote, tmp_path, "status ours").count(" completed  6/6") == 4
    line = tread_lab(zygote, tmp_path, sweep, code=2).strip()
    assert "unknown model 'pool-4x16/2'" in line and "install the package that adds it" in line
    assert "\n" not in line


def trained_beside(run: RunFolder) -> list[str]:
    return sorted(name for name in last_checkpoint(run).tensors if name.startswith("means/"))


def assert_made_with(lab: Lab, *, version: str) -> None:
    """Check that both runs ended, and that they and their evaluations name the package."""
    runs = [lab.run(path.name) for path in (lab.root / "runs").iterdir()]
    assert [run.state() for run in runs] == [RunState.COMPLETED] * 4
    assert sorted(map(trained_beside, runs)) == [[], [], *[["means/bias", "means/weight"]] * 2]
    for run in runs:
        (attempt,) = run.attempts.read()
        assert run.origin()[0]["packages"]["our-tread"] == version
        assert attempt.fingerprint["package our-tread"] == version
        records = [json.loads(p.read_text()) for p in run.path.glob("evaluations/*/metrics.json")]
        packages = {record["spec"]["kind"]: record.get("packages") for record in records}
        assert packages == {"heldout_loss": None, "samples": {"our-tread": version}}
