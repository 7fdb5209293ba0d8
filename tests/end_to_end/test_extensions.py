"""A package of one's own: a sweep trains with its kinds, records name it, its absence is a line.

Its backbone has long skips, and its system a loss, a network beside the one that is sampled, and a
cost; all of it by the public protocol alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.drivers import Zygote
from tests.packages import write_metadata
from tread_lab.engine.checkpoint import load_latest
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.status import RunState

FACTS = """
from tread_lab.specs.metrics import Metric, MetricKind
from tread_lab.specs.model import Backbone
from tread_lab.specs.routes import Selection
from tread_lab.specs.systems import JoinedBy

POOL = Backbone(code="our_code:Pool", alike=False)
MEANS = JoinedBy("our_means", {"loss": "MeansLoss"})
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
    # Tokens read their mean: 2 d^2 weights, no attention; after the middle d^2 more, for a skip.
    def __init__(self, width, skips):
        super().__init__()
        self.own, self.mean = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, width))
        self.skip = nn.Linear(width, width, bias=False) if skips else None

    def forward(self, x_BND, c_BD, positions_BNP=None, *, skip=None):
        read_BND = self.own(x_BND) + self.mean(x_BND.mean(dim=1, keepdim=True))
        if self.skip is not None:
            read_BND = read_BND + self.skip(skip)
        return x_BND + (1 + self.adaLN_modulation(c_BD)[:, None]) * read_BND


class Pool(DiT):
    @property
    def skips(self):
        last = self.spec.depth - 1
        return {last - l: l for l in range(self.spec.depth // 2)}

    def block(self, l):
        return PoolBlock(self.spec.width, l in self.skips)


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

MEANS_SPEC = """
from dataclasses import dataclass
from typing import Literal

from tread_lab.specs.objective import Loss


@dataclass(frozen=True, kw_only=True)
class MeansLoss(Loss):
    dense = True

    kind: Literal["means"] = "means"
    weight: float = 0.5

    def __str__(self):
        return f"means {self.weight:g}"
"""

# c channels of a sample, d width
MEANS_SYSTEM = """
from tread_lab.engine.cost.added import Added, Beside
from tread_lab.engine.system import Part, System


class Means(System):
    def part(self, run):
        return Head(run)

    def beside(self, spec):
        c, d = spec.data.channels, spec.model.width
        return Beside(Added(c * d + c, macs=lambda tokens: c * d))


class Head(Part):
    observes = True

    def __init__(self, run):
        from torch import nn

        head = nn.Linear(run.spec.model.width, run.spec.data.channels)
        super().__init__(trained={"means": head})
        self.head, self.weight = run.share(head), run.spec.loss.weight
        self.last = run.spec.model.depth - 1

    def loss(self, loss_B, done):
        said_BC = self.head(done.streams[self.last].mean(dim=1))
        wrong_B = (said_BC - done.batch.x_BCHW.mean(dim=(2, 3))).square().mean(dim=1)
        return loss_B + self.weight * wrong_B


SYSTEM = Means()
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
[tread_lab.systems]
means = our_facts:MEANS
"""

SWEEP = """
question: Does a backbone of our own learn under a route of our own?
experiment: tiny
fixed:
  model: pool-4x16/2
  train: {steps: 6, batch: 8, schedule: half}
  execution: {log_every: 2, checkpoint_every: 3}
axes: {route: [1->2 by left], loss: [plain, {kind: means, weight: 0.25}]}
evaluate:
  - heldout_loss: {images: 16, levels: 2}
  - samples: {metrics: [mean_gap], count: 100, sampler: {solver: leapfrog, steps: 2}}
"""


def install(folder: Path, version: str) -> None:
    """Write the package `our-tread` as an installer leaves it."""
    (folder / "our_facts.py").write_text(FACTS)
    (folder / "our_code.py").write_text(CODE)
    (folder / "our_means").mkdir(exist_ok=True)
    (folder / "our_means" / "spec.py").write_text(MEANS_SPEC)
    (folder / "our_means" / "system.py").write_text(MEANS_SYSTEM)
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
    line = tread_lab(zygote, tmp_path, f"{sweep} seeds=[0,1] --extend", code=2)
    assert "package our-tread differs: 1.0 in 4 runs, 1.1 in what is to be run now" in line

    (site / "our_tread.dist-info" / "entry_points.txt").unlink()
    assert tread_lab(zygote, tmp_path, "status ours").count(" completed  6/6") == 4
    line = tread_lab(zygote, tmp_path, sweep, code=2).strip()
    assert "unknown model 'pool-4x16/2'" in line and "install the package that adds it" in line
    assert "\n" not in line


def trained_beside(run: RunFolder) -> list[str]:
    checkpoint = load_latest(run.checkpoints)
    assert checkpoint is not None
    return sorted(name for name in checkpoint.tensors if name.startswith("means/"))


def assert_made_with(lab: Lab, *, version: str) -> None:
    """Check that both runs ended, and that they and their evaluations name the package."""
    runs = [lab.run(path.name) for path in (lab.root / "runs").iterdir()]
    assert [run.state() for run in runs] == [RunState.COMPLETED] * 4
    assert sorted(map(trained_beside, runs)) == [[], [], *[["means/bias", "means/weight"]] * 2]
    for run in runs:
        (attempt,) = run.attempts.read()
        assert run.origin()[0]["packages"]["our-tread"] == version
        assert attempt.made_with["package our-tread"] == version
        records = [json.loads(p.read_text()) for p in run.path.glob("evaluations/*/metrics.json")]
        packages = {record["spec"]["kind"]: record.get("packages") for record in records}
        assert packages == {"heldout_loss": None, "samples": {"our-tread": version}}
