"""The cost command: exact cost of a model under its routes; it builds nothing."""

from __future__ import annotations

import json

from tread_lab.commands.options import DONE, Cost
from tread_lab.commands.resolve import run_spec
from tread_lab.config.load import load_experiment
from tread_lab.cost.report import report, table
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan.plan import with_whole_parents
from tread_lab.terminal.console import show_pairs


def cost(options: Cost) -> int:
    """Print parameters, MACs, FLOPs and speed-up; return the exit code."""
    model = options.model
    experiment, overrides = options.experiment, options.overrides
    if experiment and ("=" in experiment or experiment.startswith("~")):
        overrides, experiment = [experiment, *overrides], None
    lightning = (model or "").startswith("LightningDiT")  # of latents 32x16x16
    of_model = "lightning_xl1_imagenet256" if lightning else "b2_imagenet256"
    name = experiment or (of_model if model else "tiny")
    named_model = [f"model={model}"] if model else []
    loaded = with_whole_parents(load_experiment(name, [*overrides, *named_model]), Lab.at())
    spec = run_spec(loaded, options.route, options.rate)
    if options.as_json:
        print(json.dumps(report(spec), indent=1))
        return DONE
    show_pairs([("experiment", f"{name}, {spec.tokens} tokens"), *table(spec)])
    return DONE
