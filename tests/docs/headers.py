"""Headers of sweep and experiment files: their commands, and the plan that they state for each.

A command in a header is followed by what it plans, indented further than the command:

    #   tread-lab train b2_imagenet256 data.path=LATENTS --route "2->B-4"
    #       1 run: DiT-B/2 130M, 256 tokens; 2->8 (7 of 12 blocks, 1.426x); 400K steps of 256,
    #       edm, bf16; 9.9e18 FLOPs; heldout_loss, fid@10k; heun 40

`python -m tests.docs.headers` writes the plans anew; a last part that begins with `about` is kept.
"""

from __future__ import annotations

import functools
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT
from tread_lab.cli.main import parse
from tread_lab.cli.options import run_spec
from tread_lab.config import load
from tread_lab.config.evaluation import EvaluationSpec, SamplesSpec, decode_evaluations
from tread_lab.config.guidance import in_short
from tread_lab.config.labels import count_label
from tread_lab.config.lengths import QUESTIONS
from tread_lab.config.metrics import METRICS
from tread_lab.config.run import RunSpec
from tread_lab.config.units import counted
from tread_lab.cost.training import cost
from tread_lab.sweep.plan import make_plan
from tread_lab.sweep.task import Task, with_ancestors

FILES = sorted([*ROOT.glob("sweeps/*.yaml"), *ROOT.glob("experiments/*.yaml")])
EMBEDDED = "fashion16"
CPU, GPU = ["fp32", "bf16", "fp16"], ["fp32", "tf32", "bf16", "fp16"]  # precisions of a device
_COMMAND, _PLAN = "#   tread-lab ", "#       "
_FEW = 6  # routings and evaluations that are named; more are counted


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
        experiment = load.load_experiment(options.experiment, options.overrides)
        measured = decode_evaluations(experiment.evaluate, experiment.usual)
        train = list(
            with_ancestors([Task(run_spec(experiment, options.route, options.rate), measured)])
        )
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


def _controls(line: str) -> str:
    """Return `, 1 control` for a command whose sweep has one."""
    options = parse(shlex.split(line.removeprefix("tread-lab ")))
    if options.command != "sweep":
        return ""
    count = len(load.load_sweep(options.file, options.overrides)[1].controls)
    return f", {counted(count, 'control')}" if count else ""


def planned(line: str) -> str:
    """Return the plan of a command in the words of a header."""
    runs, tasks, match = tasks_of(line)
    specs = [task.spec for task in tasks]
    flops = sum(cost(spec).train_flops for spec in specs) * runs / len(specs)
    of = f" of {len(specs)}" if runs < len(specs) else ""
    parts = [
        f"{runs}{of} run{'s' if runs > 1 else ''}: {_models(specs)}",
        _few([_routing(spec) for spec in specs], "routings") + _controls(line),
        _lengths(specs) + match,
        f"{flops:.1e} FLOPs".replace("e+", "e").replace("e0", "e"),
        _measured([e for task in tasks for e in task.evaluations], {s.data.source for s in specs}),
    ]
    return "; ".join(parts)


def _models(specs: Sequence[RunSpec]) -> str:
    """`DiT-XL/2 675M, 256 tokens`."""
    sizes: dict[str, set[int]] = {}
    for spec in specs:
        sizes.setdefault(spec.model.name, set()).add(cost(spec).parameters)
    names = [f"{name} {_span(map(_size, sorted(found)))}" for name, found in sizes.items()]
    return ", ".join([*names, f"{_span(map(str, sorted({s.tokens for s in specs})))} tokens"])


def _routing(spec: RunSpec) -> tuple[str, int, float]:
    """(`2->24 (23 of 28 blocks, 1.716x)`, routed blocks, speed-up)."""
    if not spec.routes:
        return "dense", 0, 1.0
    count = sum(len(route.blocks) for route in spec.routes)
    price = cost(spec)
    text = "+".join(map(str, spec.routes))
    first = spec.routes[0]
    text += f" at {first.rate:g}" if first.rate != 0.5 else ""
    text += f" by {first.selection}" if first.selection != "random" else ""
    text += f" with {spec.bypass.kind}" if spec.bypass.kind != "route" else ""
    return (
        f"{text} ({count} of {spec.model.depth} blocks, {price.speedup:.3f}x)",
        count,
        price.speedup,
    )


def _few(routings: Sequence[tuple[str, int, float]], what: str) -> str:
    """Each of a few routings, else their number and range."""
    distinct = list(dict.fromkeys(routings))
    if len(distinct) <= _FEW:
        return ", ".join(text for text, _, _ in distinct)
    dense = ["dense"] * any(count == 0 for _, count, _ in distinct)
    routed = [(count, gain) for _, count, gain in distinct if count]
    blocks = _span(map(str, sorted({count for count, _ in routed})))
    gains = sorted(gain for _, gain in routed)
    told = f"{len(routed)} {what} of {blocks} blocks ({gains[0]:.3f}x to {gains[-1]:.3f}x)"
    return ", ".join([*dense, told])


def _lengths(specs: Sequence[RunSpec]) -> str:
    """`400K steps of 256, 75K steps of 1024, edm, bf16`; many lengths as `400K to 769398 steps`."""
    lengths = list(dict.fromkeys((spec.train.steps, spec.train.batch) for spec in specs))
    texts = [f"{_thousands(steps)} steps of {batch}" for steps, batch in lengths]
    if len(lengths) > _FEW:
        (fewest, _), (most, batch) = min(lengths), max(lengths)
        texts = [f"{_thousands(fewest)} to {_thousands(most)} steps of {batch}"]
    kinds = dict.fromkeys(spec.process.kind for spec in specs)
    return ", ".join([*texts, *kinds, *dict.fromkeys(spec.precision for spec in specs)])


def _measured(evaluations: Iterable[EvaluationSpec], sources: set[str]) -> str:
    """`heldout_loss, fid@10k, fid@10k w=2 CFG; heun 40; at 50K, 100K, end`."""
    evaluations = list(evaluations)
    names, samplers = [], []
    for spec in evaluations:
        if not isinstance(spec, SamplesSpec):
            names.append(spec.kind)
            continue
        assert "fd" not in spec.metrics or sources == {EMBEDDED}, "fd has no features on these data"
        short = in_short(spec.sampler.guidance)
        told = f"w={short['w']:g} {short['method']}".strip() if short["w"] != 1 else short["method"]
        told += "" if short["interval"] is None else " in an interval"
        images = count_label(spec.count)
        heldout = "" if spec.reference else "[heldout]"
        names_of = [
            f"{m}{heldout if METRICS[m].compares and m != 'fd' else ''}" for m in spec.metrics
        ]
        metrics = [f"{m}@{images}" for m in names_of] or [f"{images} samples"]
        names += [f"{metric} {told}".strip() for metric in metrics]
        samplers.append(f"{spec.sampler.solver} {spec.sampler.steps}")
    distinct = list(dict.fromkeys(names))
    shown = ", ".join(distinct) if len(distinct) <= 2 * _FEW else f"{len(distinct)} evaluations"
    steps = dict.fromkeys(spec.step for spec in evaluations)
    during = ", ".join("end" if s is None else _thousands(int(s)) for s in steps)
    at = f"at {during}" if len(steps) > 1 else ""
    return "; ".join(filter(None, [shown, ", ".join(dict.fromkeys(samplers)), at]))


def _span(texts: Iterable[str]) -> str:
    low, *others = list(dict.fromkeys(texts))
    return f"{low} to {others[-1]}" if others else low


def _size(parameters: int) -> str:
    millions = parameters / 1e6
    if millions < 1:
        return f"{parameters / 1e3:.0f}K"
    return f"{millions:.0f}M" if millions >= 100 else f"{millions:.1f}M"


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
