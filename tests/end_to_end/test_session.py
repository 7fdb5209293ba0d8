"""A user's session, word by word: what forty commands print, one after the other, on one lab."""

from __future__ import annotations

import math
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.made_data import normal, write_arrays
from tread_lab.cli import main
from tread_lab.frames import ranking_table
from tread_lab.terminal import live_progress, progress
from tread_lab.terminal.console import answers, notices

pytestmark = pytest.mark.slow

SMALL = (
    "model.depth=4 model.width=16 model.heads=2 train.steps=20 train.batch=8 train.warmup=0"
    " execution.log_every=5 execution.checkpoint_every=10 --device cpu"
)
MEASURED = (
    "'evaluate=[{heldout_loss: {images: 16, levels: 2}},"
    " {layer_similarity: {images: 4, levels: 2}},"
    " {samples: {metrics: [fd], count: 100, sampler: {steps: 2}}}]'"
)
AXES = """'axes.route=["0->1","1->2"]' axes.rate=[0.5,0.75]"""
SWEEP = f"sweep tiny {AXES} {SMALL} {MEASURED} --name places"
PACKED = (
    "train tiny data.source=latents data.path=packed data.channels=4 data.size=8 data.classes=5"
    f" {SMALL}"
)
RUN = "{run}"  # the run that `train` has made

SESSION = f"""
cost tiny --route 1->2 {SMALL.removesuffix("--device cpu")}
cost b2_imagenet256 --route 2->8 --json
train tiny --route 1->2 {SMALL}
train tiny --route 1->2 {SMALL}
train tiny --route 1->9 {SMALL}
evaluate {RUN} heldout_loss --device cpu
{SWEEP} seeds=[0,1] --executor inline --plan
{SWEEP} seeds=[0,1] --executor inline
{SWEEP} seeds=[0,1] --executor inline --no-mlflow
{SWEEP} seeds=[0,1,2] --executor inline --plan
status
status places
status places --json
status {RUN}
status nowhere
report places
sync places
export {RUN} weights
train tiny init_from.file=weights/model.safetensors {SMALL} {MEASURED}
data verify latents
data stats latents
data pack latents packed
{PACKED}
{PACKED} 'evaluate=[{{heldout_loss: {{images: 2}}}}]'
rm {RUN}
sweep tiny 'route="0->1"' {SMALL} {MEASURED} --name few --executor inline
rm few --yes
rm places
rm places --yes
"""

# What the clock, the machine and the version have a part in.
OF_NOW = re.compile(
    r"(?<![>\w])[\d.]+ (s|ms|min|h)\b(?!=)|[\d.,]+ images/s|process \d+ on \S+|digest \w+"
    r"|\d+\.?\d* [kMG]B free|and [\w ,]* has \d+\.?\d* [kMGT]B|\b1[6-9]\d{8}\.\d+"
    r"|tread-lab \d+\.\d+\.\d+|(?:files of|in) [\d.]+ [kM]B|\([\d.]+ [kM]B\)"
    r"|[\d.e-]+ device-hours: training [\d.e-]+, evaluations [\d.e-]+"
    r"|cost/peak_memory_bytes +[\d.]+ [kMGT]B|# crc \w+|^- (packages|device|.*code): .*"
    r'|(?<=")(crc|pid|driver|node|host|by|code|diff|python|device|model|session)": ("[^"\n]*"|\d+)'
    r'|"diff": ".*|"\d+": "[0-9a-f]{16}"'
    r'|(seconds|bytes|per_s|per_s", "value)": [\d.e+-]+|"\d+\.\d+\.\d+[^"]*"',
    re.M,
)
NUMBER = r"(?<![\w.])([-+]?\d+\.?\d*(?:e[-+]\d+)?)(?![\w])"
TEXTS = (".yaml", ".json", ".jsonl", ".md")
STORED = Path(__file__).parent / "session.txt"


def documents(line: str, run: str) -> list[Path]:
    """The texts that the commands so far have written, for people or other programs."""
    if line == "report places":
        folders = [Path("lab/runs", run), Path("lab/sweeps/places")]
        evaluated = sorted(folders[0].glob("evaluations/*/metrics.json"))
        return [p for f in folders for p in sorted(f.iterdir()) if p.suffix in TEXTS] + evaluated
    if line.startswith("export {run}"):
        return sorted(path for path in Path("weights").iterdir() if path.suffix in TEXTS)
    return []


def shown(path: Path) -> str:
    return f"----- {path}\n{path.read_text()}"


def test_what_a_session_prints(
    in_folder: Path,
    no_figures: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Words as they are stored, numbers to 2%: `RENEW_SCREENS=1` writes what is printed now."""
    write_arrays(Path("latents"), normal(), classes=5)
    monkeypatch.setattr(ranking_table, "spent", lambda frame: None)  # hours of this machine
    for lines in (live_progress, progress):  # a slow machine says no more than a fast one
        monkeypatch.setattr(lines, "_LINE_SECONDS", math.inf)
    before = answers.width, notices.width
    answers.width = notices.width = 120
    scenes, run, by_file = [], "", ""
    for line in SESSION.strip().splitlines():
        code = main(shlex.split(line.replace(RUN, run)))
        out, err = capsys.readouterr()
        made = re.search(r"runs/([0-9a-f]{16})", out + err)
        run = run or (made[1] if made else "")
        if made and "init_from.file" in line:
            by_file = made[1]  # its name has the digest of weights, whose last bits are a CPU's
        scenes.append(f"$ tread-lab {line}\n{err}{out}[{code}]\n")
        scenes += [shown(path) for path in documents(line, run)]
    answers.width, notices.width = before
    text = OF_NOW.sub(
        "~", "\n".join(scenes).replace(str(in_folder), "FOLDER").replace(by_file, "BY FILE")
    )
    text = re.sub(" +\n", "\n", re.sub("  +", "  ", text))  # columns are as wide as their times
    text = re.sub(r"^(\{.*\n)\1+", r"\1", text, flags=re.M)  # a driver notes its time now and then
    if "RENEW_SCREENS" in os.environ:
        STORED.write_text(text)
    found, stored = (re.split(NUMBER, words) for words in (text, STORED.read_text()))
    assert found[::2] == stored[::2]
    wrong = [
        f"{before[-80:]}{number} and not {other}"
        for before, number, other in zip(found[::2], found[1::2], stored[1::2])
        if float(number) != pytest.approx(float(other), rel=0.02, abs=1e-3)
    ]
    assert wrong == []
