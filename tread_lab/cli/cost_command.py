"""The cost command: exact cost of a model under its routes; it builds nothing."""

from __future__ import annotations

import json
from typing import Annotated

from tread_lab.cli.options import DONE, AsJson, Overrides, Rate, Routes
from tread_lab.records.lab import Lab


def cost(
    experiment: Annotated[
        str | None, "a base run (default: tiny; b2_imagenet256 with --model)"
    ] = None,
    overrides: Overrides = (),
    *,
    model: Annotated[str | None, "e.g. DiT-XL/2 (default: the model of the experiment)"] = None,
    route: Routes = None,
    rate: Rate = None,
    as_json: AsJson = False,
) -> int:
    """Compute parameters, MACs, FLOPs, speed-up.

    Example: tread-lab cost --route "2->B-4"
    """
    from tread_lab.cli.console import show_pairs
    from tread_lab.cli.resolve import run_spec
    from tread_lab.config.load import load_experiment
    from tread_lab.cost.report import report, table
    from tread_lab.sweep.plan import with_whole_parents

    if experiment and ("=" in experiment or experiment.startswith("~")):
        overrides, experiment = [experiment, *overrides], None
    lightning = (model or "").startswith("LightningDiT")  # of latents 32x16x16
    of_model = "lightning_xl1_imagenet256" if lightning else "b2_imagenet256"
    name = experiment or (of_model if model else "tiny")
    named_model = [f"model={model}"] if model else []
    loaded = with_whole_parents(load_experiment(name, [*overrides, *named_model]), Lab.at())
    spec = run_spec(loaded, route, rate)
    if as_json:
        print(json.dumps(report(spec), indent=1))
    else:
        show_pairs([("experiment", f"{name}, {spec.tokens} tokens"), *table(spec)])
    return DONE
