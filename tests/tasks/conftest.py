"""A folder, the commands as a user types them, and one finished sweep for all that only reads."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from tests.faults.drivers import QUIET, Zygote
from tread_lab.cli.main import main
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame

DONE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 130
INLINE = ("--executor", "inline", "--device", "cpu", "--tracker=none")
# A network, a training and a probe of a second.
FIXED = """
experiment: tiny
fixed:
  model: {depth: 4, width: 16, heads: 1, init: official_code}
  train: {steps: 4, batch: 4, lr: 0.01, warmup: 0}
  execution: {log_every: 1, checkpoint_every: 2}
"""
PROBE = "evaluate: [{heldout_loss: {images: 16, levels: 2}}]\n"
SMALL = (
    "tiny model.depth=4 model.width=16 model.heads=1 model.init=official_code"
    " train.steps=4 train.batch=4 train.lr=0.01 train.warmup=0 execution.log_every=1"
    " execution.checkpoint_every=2 execution.keep_steps=[2] --device cpu"
)
SWEPT = f"""
question: Where does a route cost least?{FIXED}
axes: {{route: {{start: 0..1, end: 1..2}}, rate: [0.25, 0.5]}}
where: end - start == 1
seeds: [0, 1]
evaluate:
  - {{heldout_loss: {{images: 16, levels: 2}}}}
  - {{layer_similarity: {{images: 4, levels: 2}}}}
  - {{samples: {{metrics: [fd], count: 100, sampler: {{steps: 2}}}}}}
"""


class Answer(NamedTuple):
    """The exit code of a command and the text it prints."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def mistake(self) -> str:
        """The one line that refuses the command."""
        assert self.code == MISTAKE, self
        lines = [line for line in self.err.splitlines() if line.startswith("tread-lab: ")]
        assert len(lines) == 1 and "Traceback" not in self.err + self.out, self.err
        return lines[0]


Command = Callable[..., Answer]


@pytest.fixture
def run_command(in_folder: Path, no_figures: None, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `tread-lab LINE WORDS` in this process, in an empty folder, without figures."""

    def run(line: str, *words: str) -> Answer:
        capsys.readouterr()
        return Answer(main([*shlex.split(line), *words]), *capsys.readouterr())

    return run


@pytest.fixture
def run_sweep(run_command: Command) -> Callable[..., Answer]:
    """Write a sweep file and run it without Ray and MLflow; it ends well unless told otherwise."""

    def sweep(text: str, *words: str, name: str = "small", code: int = DONE) -> Answer:
        Path(f"{name}.yaml").write_text(text)
        done = run_command(f"sweep {name}.yaml", *INLINE, *words)
        assert done.code == code, done.err
        return done

    return sweep


@pytest.fixture
def lab(in_folder: Path) -> Lab:
    """The lab of the current folder."""
    return Lab(in_folder / "lab")


@pytest.fixture(scope="session")
def swept(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the sweep `small` of two placements, two rates and two seeds has ended."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.yaml").write_text(SWEPT)
    done = zygote.run(folder, "sweep", "small.yaml", *INLINE, prelude=QUIET, HOME=str(folder))
    assert done.returncode == DONE, done.stderr
    return folder


@pytest.fixture
def swept_lab(swept: Path, in_folder: Path, lab: Lab) -> Lab:
    """A copy of the finished sweep's lab in the current folder."""
    shutil.copytree(swept / "lab", lab.root, symlinks=True)
    shutil.copy(swept / "small.yaml", in_folder)
    return lab


def trials(lab: Lab, sweep: str = "small") -> pd.DataFrame:
    """The rows of a sweep, one for each cell and seed, dense runs included."""
    return trials_frame(lab, sweep)


def attempts(lab: Lab) -> dict[str, int]:
    """Run -> how often it was begun."""
    return {run.name: len(run.origin()) for run in lab.runs()}


def measured(lab: Lab) -> Iterator[dict[str, Any]]:
    """Every evaluation on record."""
    for path in sorted(lab.root.glob("runs/*/evaluations/*/metrics.json")):
        yield json.loads(path.read_text())
