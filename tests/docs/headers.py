"""Headers of sweep and experiment files: their commands, and the plan that they state for each.

A command in a header is followed by what it plans, indented further than the command:

    #   tread-lab train b2_imagenet256 data.path=LATENTS --route "2->B-4"
    #       1 run; 400K steps of 256; 9.9e18 FLOPs

`python -m tests.docs.headers` writes the plans anew; a last part that begins with `about` is kept.
"""

from __future__ import annotations

import functools
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT
from tread_lab.cli.main import parse
from tread_lab.cli.options import routed, run_spec
from tread_lab.config import load
from tread_lab.config.evaluation import decode_evaluations
from tread_lab.config.sweep import QUESTIONS
from tread_lab.cost.training import cost
from tread_lab.sweep.plan import make_plan
from tread_lab.sweep.task import Task, with_ancestors

FILES = sorted([*ROOT.glob("sweeps/*.yaml"), *ROOT.glob("experiments/*.yaml")])
CPU, GPU = ["fp32", "bf16", "fp16"], ["fp32", "tf32", "bf16", "fp16"]  # precisions of a device
_COMMAND, _PLAN = "#   tread-lab ", "#       "


@dataclass(frozen=True)
class Stated:
    """A command of a header with the plan that stands below it.

    Attributes:
        line: the command, continued lines joined.
        plan: what the header says that it plans, one space between words.
        remark: a last part of the plan that is measured, not planned: `about 8 minutes on ...`.
        rows: where the plan stands among the lines of the file.
    """

    line: str
    plan: str
    remark: str
    rows: range


def stated(text: str) -> list[Stated]:
    """Return the commands of a file's header, each with its plan."""
    lines = text.splitlines()
    found = []
    for k, line in enumerate(lines):
        if not line.startswith(_COMMAND):
            continue
        last = k
        while lines[last].endswith("\\"):
            last += 1
        end = last + 1
        while end < len(lines) and lines[end].startswith(_PLAN):
            end += 1
        command = " ".join(part.lstrip("# ").removesuffix("\\") for part in lines[k : last + 1])
        said = " ".join(part.lstrip("# ") for part in lines[last + 1 : end])
        plan, about, remark = said.partition("; about ")
        found.append(Stated(command, plan, about + remark, range(last + 1, end)))
    return found


def tasks_of(line: str) -> tuple[int, list[Task], str]:
    """Return how many runs a command makes, every run that it may choose from, and what a sweep
    matches."""
    options = parse(shlex.split(line.removeprefix("tread-lab ")))
    if options.command == "train":
        written = routed(options.route, options.overrides)
        experiment = load.load_experiment(options.experiment, written)
        measured = decode_evaluations(experiment.evaluate, experiment.usual)
        train = list(with_ancestors([Task(run_spec(experiment, options.rate), measured)]))
        return len(train), train, ""
    assert options.command == "sweep", line
    return _swept(Path.cwd(), options.file, tuple(options.overrides), "data.path" in line)


@functools.cache
def _swept(
    folder: Path, file: str, overrides: Sequence[str], on_gpu: bool
) -> tuple[int, list[Task], str]:
    """Plan a sweep in the current folder, whose files must not change."""
    name, sweep, experiment = load.load_sweep(file, overrides)
    device = {"type": "cpu", "precisions": CPU}
    if on_gpu:
        device = {"type": "cuda", "precisions": GPU}
    if sweep.match == "train_seconds":
        sweep = replace(sweep, match="train_flops")  # stands for the times of a lab with runs
    plan = make_plan(name, sweep, experiment, {"device": device})
    tasks = list(plan.possible_tasks)
    match = f", {QUESTIONS[plan.match]}" if plan.match else ""
    if sweep.search is None:
        return len(tasks), tasks, match
    return len(plan.tasks) + sweep.search.trials * len(sweep.seeds), tasks, match


def planned(line: str) -> str:
    """Return the plan of a command in the words of a header: runs, their steps, FLOPs."""
    runs, tasks, match = tasks_of(line)
    specs = [task.spec for task in tasks]
    flops = sum(cost(spec).train_flops for spec in specs) * runs / len(specs)
    of = f" of {len(specs)}" if runs < len(specs) else ""
    steps = [spec.train.steps for spec in specs]
    span = " to ".join(dict.fromkeys(map(_thousands, (min(steps), max(steps)))))
    batches = ", ".join(map(str, sorted({spec.train.batch for spec in specs})))
    price = f"{flops:.1e} FLOPs".replace("e+", "e").replace("e0", "e")
    return f"{runs}{of} run{'s' * (runs > 1)}; {span} steps of {batches}{match}; {price}"


def _thousands(steps: int) -> str:
    return f"{steps // 1000}K" if steps >= 10_000 and steps % 1000 == 0 else str(steps)


def rewritten(text: str) -> str:
    """Return a file's text with the plans of its commands as they are now."""
    lines = text.splitlines()
    for command in reversed(stated(text)):
        said = planned(command.line) + command.remark
        width = {"width": 100 - len(_PLAN), "break_long_words": False, "break_on_hyphens": False}
        rows: Any = [_PLAN + row for row in textwrap.wrap(said, **width)]
        lines[command.rows.start : command.rows.stop] = rows
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in map(Path, FILES):
        path.write_text(rewritten(path.read_text()))
