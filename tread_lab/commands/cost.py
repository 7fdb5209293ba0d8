"""The cost command: exact cost of a model under its routes; it builds nothing."""

from __future__ import annotations

import json

from tread_lab.commands.options import DONE, Cost
from tread_lab.commands.resolve import run_spec
from tread_lab.config.load import load_experiment
from tread_lab.engine.cost.report import report, table
from tread_lab.engine.cost.speed import RATES
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError, lookup
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.run import RunSpec
from tread_lab.specs.sweep import Experiment
from tread_lab.specs.units import duration, durations
from tread_lab.sweep.plan.forecast import Forecast
from tread_lab.sweep.plan.plan import with_whole_parents
from tread_lab.terminal.console import show_pairs


def cost(options: Cost) -> int:
    """Print parameters, MACs, FLOPs and speed-up; return the exit code."""
    model, device_rates = options.model, options.device_rates
    experiment, overrides = options.experiment, options.overrides
    if experiment and ("=" in experiment or experiment.startswith("~")):
        overrides, experiment = [experiment, *overrides], None
    lightning = (model or "").startswith("LightningDiT")  # of latents 32x16x16
    of_model = "lightning_xl1_imagenet256" if lightning else "b2_imagenet256"
    name = experiment or (of_model if model else "tiny")
    named_model = [f"model={model}"] if model else []
    loaded = with_whole_parents(load_experiment(name, [*overrides, *named_model]), Lab.at())
    spec = run_spec(loaded, options.route, options.rate)
    if options.as_json and device_rates:
        raise UserError("--device-rates: its times are no part of --json; leave one of both out")
    if options.as_json:
        print(json.dumps(report(spec), indent=1))
        return DONE
    times = _times(spec, loaded, device_rates) if device_rates else []
    show_pairs([("experiment", f"{name}, {spec.tokens} tokens"), *table(spec), *times])
    return DONE


def _times(spec: RunSpec, experiment: Experiment, device: str) -> list[tuple[str, str]]:
    """Return rows with the times of training and of every evaluation by the device's rates."""
    rates = lookup(RATES, device, "--device-rates")
    times = Forecast(Lab.at(), rates=rates)
    rows = [("training time", durations(times.training(spec), times.timing(spec).spread))]
    for evaluation in decode_evaluations(experiment.evaluate, experiment.usual):
        parts, references = times.parts(spec, evaluation), times.references(spec, evaluation)
        seconds = {"network": parts.pop("sampling"), **parts}
        seconds |= {f"{name} of references": s for name, s in references.items()}
        text = ", ".join(f"{name} {duration(s)}" for name, s in seconds.items())
        rows.append((evaluation.kind.replace("_", " "), text))
    return [*rows, (f"rates of {device}", rates.source)]
