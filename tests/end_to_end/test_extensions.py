"""A package of one's own: a sweep trains with its kinds, records name it, its absence is a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.drivers import Zygote
from tests.packages import write_metadata
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState

FACTS = """
from tread_lab.specs.metrics import Metric, MetricKind
from tread_lab.specs.model import Backbone
from tread_lab.specs.routes import Selection

POOL = Backbone(code="our_code:Pool")
LEFT = Selection(code="our_code:left")
MEAN_GAP = Metric(
    features="any", kind=MetricKind("quality", "lower", label="gap of means"), code="our_code:gap"
)
"""

CODE = """
import torch
from torch import nn

from tread_lab.backbones.dit import DiT


class PoolBlock(nn.Module):
    # Tokens read their mean: 2 d^2 weights, and no attention.
    def __init__(self, width):
        super().__init__()
        self.own, self.mean = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, width))

    def forward(self, x_BND, c_BD, positions_BNP=None):
        read_BND = self.own(x_BND) + self.mean(x_BND.mean(dim=1, keepdim=True))
        return x_BND + (1 + self.adaLN_modulation(c_BD)[:, None]) * read_BND


class Pool(DiT):
    def block(self, l):
        return PoolBlock(self.spec.width)


def left(route, rank_BN):
    # Keep the last tokens of the raster, whatever their rank.
    B, N = rank_BN.shape
    return torch.arange(route.routed(N), N, device=rank_BN.device).expand(B, -1), None


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

ENTRY_POINTS = """
[tread_lab.backbones]
pool = our_facts:POOL
[tread_lab.selections]
left = our_facts:LEFT
[tread_lab.metrics]
mean_gap = our_facts:MEAN_GAP
[tread_lab.solvers]
leapfrog = our_code:leapfrog
[tread_lab.schedules]
half = our_code:half
"""

SWEEP = """
question: Does a backbone of our own learn under a route of our own?
experiment: tiny
fixed:
  model: pool-4x16/2
  train: {steps: 6, batch: 8, schedule: half}
  execution: {log_every: 2, checkpoint_every: 3}
axes: {route: [1->2 by left]}
evaluate:
  - heldout_loss: {images: 16, levels: 2}
  - samples: {metrics: [mean_gap], count: 100, sampler: {solver: leapfrog, steps: 2}}
"""


def install(folder: Path, version: str) -> None:
    """Write the package `our-tread` as an installer leaves it."""
    (folder / "our_facts.py").write_text(FACTS)
    (folder / "our_code.py").write_text(CODE)
    write_metadata(folder, ENTRY_POINTS, name="our-tread", version=version)


# The process that commands are forked from has looked at the installed packages already.
FOUND = """
import sys
from tread_lab.specs.extensions import installed
sys.path.insert(0, {site!r})
installed.cache_clear()
"""


def tread_lab(zygote: Zygote, folder: Path, line: str, *, code: int = 0) -> str:
    """Run a command where the package is found; return what it answers, or its error."""
    done = zygote.run(folder, *line.split(), prelude=FOUND.format(site=str(folder / "site")))
    assert done.returncode == code, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stderr if code else done.stdout


@pytest.mark.slow
def test_a_sweep_with_a_package_of_our_own(tmp_path: Path, zygote: Zygote) -> None:
    site, sweep = tmp_path / "site", "sweep ours.yaml --executor inline --no-mlflow"
    site.mkdir()
    install(site, "1.0")
    (tmp_path / "ours.yaml").write_text(SWEEP)
    ranking = tread_lab(zygote, tmp_path, sweep)
    assert "mean_gap[fashion16-v1]@100" in ranking and "1->2 by left s=0.5" in ranking
    assert_made_with(Lab(tmp_path / "lab"), version="1.0")
    cost = json.loads(tread_lab(zygote, tmp_path, "cost model=pool-4x16/2 --json"))
    assert (cost["model"], cost["parameters"], cost["dense_macs"]) == ("pool-4x16/2", 8452, 80640)

    install(site, "1.1")
    line = tread_lab(zygote, tmp_path, f"{sweep} seeds=[0,1] --extend", code=2)
    assert "package our-tread differs: 1.0 in 2 runs, 1.1 in what is to be run now" in line

    (site / "our_tread.dist-info" / "entry_points.txt").unlink()
    assert tread_lab(zygote, tmp_path, "status ours").count(" completed  6/6") == 2
    line = tread_lab(zygote, tmp_path, sweep, code=2).strip()
    assert "unknown model 'pool-4x16/2'" in line and "install the package that adds it" in line
    assert "\n" not in line


def assert_made_with(lab: Lab, *, version: str) -> None:
    """Check that both runs ended, and that they and their evaluations name the package."""
    runs = [lab.run(path.name) for path in (lab.root / "runs").iterdir()]
    assert [run.state() for run in runs] == [RunState.COMPLETED] * 2
    for run in runs:
        (attempt,) = run.attempts.read()
        assert run.origin()[0]["packages"]["our-tread"] == version
        assert attempt.made_with["package our-tread"] == version
        records = [json.loads(p.read_text()) for p in run.path.glob("evaluations/*/metrics.json")]
        packages = {record["spec"]["kind"]: record.get("packages") for record in records}
        assert packages == {"heldout_loss": None, "samples": {"our-tread": version}}
