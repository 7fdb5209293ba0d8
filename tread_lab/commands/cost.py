"""The cost command: exact cost of a model under its routes; it builds nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.commands.exit_codes import DONE
from tread_lab.commands.parents import written_out
from tread_lab.commands.routes import run_spec
from tread_lab.config import load
from tread_lab.engine.cost.rates import rates_named
from tread_lab.engine.cost.report import report, table
from tread_lab.records.lab import Lab
from tread_lab.screen.console import show_pairs
from tread_lab.screen.units import duration
from tread_lab.specs.evaluation import decode_evaluations
from tread_lab.specs.run import RunSpec
from tread_lab.specs.sweep import Experiment


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab cost`; `device_rates` names a device with stated rates."""

    model: str | None
    experiment: str | None
    device_rates: str | None
    overrides: Sequence[str]
    route: Sequence[str] | None
    rate: float | None
    json: bool


def run(options: Options) -> int:
    """Print parameters, MACs, FLOPs and speed-up; return the exit code."""
    name = options.experiment or ("b2_imagenet256" if options.model else "tiny")
    model = [f"model={options.model}"] if options.model else []
    experiment = written_out(load.load_experiment(name, [*options.overrides, *model]), Lab.at())
    spec = run_spec(experiment, options.route, options.rate)
    if options.json:
        print(json.dumps(report(spec), indent=1))
        return DONE
    times = _times(spec, experiment, options.device_rates) if options.device_rates else []
    show_pairs([*table(spec), *times])
    return DONE


def _times(spec: RunSpec, experiment: Experiment, device: str) -> list[tuple[str, str]]:
    """Return rows with the times of training and of every evaluation by the device's rates."""
    rates = rates_named(device)
    rows = [("training time", duration(rates.train_seconds(spec)))]
    for evaluation in decode_evaluations(experiment.evaluate, experiment.sampler):
        seconds = {"network": rates.pass_seconds(spec, evaluation)}
        seconds |= {k: s for k, s in rates.image_seconds(spec, evaluation).items() if s}
        text = ", ".join(f"{name} {duration(s)}" for name, s in seconds.items())
        rows.append((evaluation.kind.replace("_", " "), text))
    return [*rows, (f"rates of {device}", rates.source)]
