"""The lines of a plan: what will run, what is left out and why, and what it costs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.sweep.search.test_budget import planned
from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.engine.cost.speed import RATES, Speed, kind_of
from tread_lab.records import stopped_early
from tread_lab.records.lab import Lab
from tread_lab.records.stopped_early import Stopped
from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.sweep.plan.forecast import Forecast, RemainingTime
from tread_lab.sweep.plan.plan import Plan, make_plan
from tread_lab.sweep.plan.timing import Timing
from tread_lab.sweep.search.budget import Budget
from tread_lab.terminal.plan import (
    budget_lines,
    evaluation_lines,
    exact_sampling,
    price_lines,
    show_plan,
)

NO_TIME = "no time is predicted (a trial step would take long on this device)"
HELDOUT = {"heldout_loss": {"images": 8, "levels": 2}}


def samples(weight: float, **more: Any) -> dict[str, Any]:
    sampler = {"guidance": weight, **more.pop("sampler", {})}
    return {"samples": {"metrics": ["fd"], "count": 1000, "sampler": sampler, **more}}


def placements(**more: Any) -> Plan:
    """Two placements and a baseline on the embedded images."""
    tree = {"experiment": "tiny", "axes": {"route": ["2->8", "0->4"]}, "evaluate": [HELDOUT]}
    base = Experiment(name="tiny", run=encode(tiny_spec(None)))
    return make_plan("placement", decode(SweepSpec, {**tree, **more}), base)


def shown(plan: Plan, lab: Lab, remaining: RemainingTime | None = None) -> list[str]:
    """The lines of a plan on a wide terminal, without the table's spaces."""
    out = Console(width=200, file=io.StringIO(), soft_wrap=True)
    show_plan(out, plan, lab, remaining or RemainingTime(None, 3), 2)
    return [" ".join(line.split()) for line in out.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_runs_that_do_not_fit_are_named_then_counted(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny, axes={"route": {"start": 0, "end": "0..7"}}, budget={"trials": 1})
    budget = Budget(lab, plan, lambda task: None)
    fits, named = budget_lines(plan, budget, plan.open_tasks(lab), 1)
    assert fits == "budget: 1 trial (0 started): 2 of 9 open runs fit"
    routes = "; ".join(f"0->{end} s=0.5 seed 0" for end in range(1, 6))
    assert named == f"not started, in the order of the plan: {routes} and 2 more"


def test_a_plan_shows_its_question_its_runs_and_their_cost(lab: Lab) -> None:
    question, heads, *rows, size, cost = shown(placements(question="Where?"), lab)
    assert question == "placement: Where?"
    assert heads == "run trial speed-up train FLOPs state"
    assert [row.split(" ", 1)[1] for row in rows] == [
        "dense seed 0 1.00x 4.87e+11 pending",
        "2->8 s=0.5 seed 0 1.48x 3.29e+11 pending",
        "0->4 s=0.5 seed 0 1.30x 3.74e+11 pending",
    ]
    assert size == (
        "3 runs of tiny, DiT-12x32/2 on fashion16, 400 steps of 16: 1 baseline, 2 trials"
    )
    assert cost == f"1.19e+12 training FLOPs; 3 runs open, 2 at once; {NO_TIME}"


def test_a_plan_in_bf16_says_what_the_fp32_block_costs_a_gpu(lab: Lab) -> None:
    """Block 9 of 12 takes twice the time."""
    plan = placements(axes={"route": ["2->8"], "precision": ["bf16"], "fp32_block": ["j+1"]})
    (line,) = [line for line in shown(plan, lab) if "fp32 block" in line]
    assert line == (
        "with its fp32 block: 1.32x at most on a GPU, its products in tf32 at half the rate; 1.48x"
        " with fp32_block=off"
    )
    assert not any("fp32 block" in line for line in shown(placements(), lab))


@pytest.mark.parametrize(
    ("remaining", "said"),
    [
        (RemainingTime(0.0, 0), "; everything is done"),
        (RemainingTime(None, 1), f"; 1 run open, 2 at once; {NO_TIME}"),
        (RemainingTime(60.0, 1, "from 3 earlier runs"),
         "; 1 run open, 2 at once: about 60 s, from 3 earlier runs"),
        (RemainingTime(7200.0, 2), "; 2 runs open, 2 at once: about 2.0 h"),
        (RemainingTime(7200.0, 2, "", 1),
         "; 2 runs open (1 trained, to be measured), 2 at once: about 2.0 h"),
    ],
)  # fmt: skip
def test_the_time_left_stands_behind_the_flops(
    remaining: RemainingTime, said: str, lab: Lab
) -> None:
    assert shown(placements(), lab, remaining)[-1] == f"1.19e+12 training FLOPs{said}"


def test_cells_left_out_ways_of_sampling_and_steps_have_a_line_each(lab: Lab) -> None:
    plan = placements(
        axes={"route": {"start": "0..2", "end": "1..2"}, "train.batch": [8, 16]},
        where="start < end",
        seeds=[0, 1],
        evaluate=[samples(1, at=[100, "end"]), samples(2), samples(3),
                  {"heldout_loss": {"images": 8, "levels": 2, "at": [100, "end"]}},
                  "layer_similarity"],
    )  # fmt: skip
    assert shown(plan, lab)[-5:-1] == [
        "6 cells not planned: `where` keeps only start < end"
        " (e.g. start=1, end=1, train.batch=8; start=1, end=1, train.batch=16)",
        "every run is sampled 3 ways: w=1; w=2; w=3",
        "every run is measured at 100, end: fd@1k, heldout_loss",
        "16 runs of tiny, DiT-12x32/2 on fashion16, 400 steps of 8 to 16: 4 baselines, 12 trials",
    ]
    two = placements(evaluate=[samples(1, at=[100, "end"]), samples(2)])
    assert not [line for line in shown(two, lab) if "ways" in line]


def test_cells_that_are_a_baselines_run_and_several_models_are_counted(lab: Lab) -> None:
    plan = placements(axes={"route": ["2->8"], "rate": [0, 0.5], "model.width": [32, 64]})
    assert shown(plan, lab)[-3:-1] == [
        "2 cells: the run of a baseline, so nothing runs twice"
        " (e.g. route=2->8, rate=0, model.width=32; route=2->8, rate=0, model.width=64)",
        "4 runs of tiny, 2 models on fashion16, 400 steps of 16: 2 baselines, 4 trials",
    ]


def test_parents_are_counted_beside_baselines_and_trials(lab: Lab) -> None:
    then = {"routes": [], "train": {"steps": 10, "warmup": 0}}
    plan = placements(axes={"route": ["2->8"]}, fixed={"then": then})
    assert shown(plan, lab)[-2].endswith(
        "10 to 400 steps of 16: 1 baseline, 1 trial, 2 parents to start from"
    )


def test_a_search_says_its_space_its_order_and_what_is_to_come(lab: Lab) -> None:
    search = {"trials": 6, "startup": 3, "objectives": ["heldout/loss", "cost/train_flops"],
              "parallel": 3, "in_order": False}  # fmt: skip
    axes = {"route": {"start": "0..3", "end": "4..7"}}
    assert shown(placements(axes=axes, search=search, seeds=[0, 1]), lab)[-4:] == [
        "search by tpe: 6 of 16 cells, 2 runs each, for heldout/loss and cost/train_flops;"
        " 3 at once, results in order of arrival",
        "6 trials still to suggest: 4.49e+12 training FLOPs at the mean of the space,"
        " 4.94e+12 at worst",
        "2 runs of tiny, DiT-12x32/2 on fashion16, 400 steps of 16: 2 baselines, 0 trials",
        f"9.74e+11 training FLOPs of runs that are certain; 3 runs open, 2 at once; {NO_TIME}",
    ]
    ordered = placements(axes=axes, search={**search, "in_order": True})
    assert "1 run each" in shown(ordered, lab)[-4]
    assert shown(ordered, lab)[-4].endswith("3 at once, reproducible order")


def test_a_run_that_this_sweep_stopped_early_is_shown_so(lab: Lab) -> None:
    write_sweep(lab.root, small(states={(2, 8): "interrupted"}))
    plan = placements(stop_early={"kind": "asha"})
    path = lab.sweep("placement").stopped_path
    stopped_early.append(path, Stopped(plan.tasks[1].run, 7, "others are better"))
    assert [row.split(" ")[-1] for row in shown(plan, lab)[2:5]] == [
        "completed", "stopped", "completed"
    ]  # fmt: skip


def test_more_than_40_runs_are_counted(lab: Lab) -> None:
    routes = [f"{i}->{j}" for i in range(12) for j in range(i, 12)][:40]
    plan = placements(axes={"route": routes})
    assert len(shown(plan, lab)) == 2 + 40 + 3 and shown(plan, lab)[-3] == "... and 1 more"
    whole = shown(placements(axes={"route": routes[:39]}), lab)
    assert len(whole) == 2 + 40 + 2


def timed(lab: Lab, plan: Plan, hours: float, *, device: str | None = None) -> Forecast:
    """Every run takes so many hours; its evaluations take no time."""
    speed = Speed(overhead=hours * 3600 / 400, per_flop=0, call=0, per_call_flop=0)
    rates = None if device is None else RATES[device]
    return Forecast(lab, {kind_of(task.spec): Timing(speed) for task in plan.tasks}, rates=rates)


def test_a_price_is_that_of_training_and_evaluations(lab: Lab) -> None:
    plan = placements()
    parameters = "parameters: DiT-12x32/2 238,980"
    known = timed(lab, plan, 4.0)
    assert list(price_lines(plan, known, plan.tasks, 2.5)) == [
        parameters, "12 device-hours: training 12, evaluations 0; at 2.5 an hour 30.00"
    ]  # fmt: skip
    assert list(price_lines(plan, known, plan.tasks, None)) == [
        parameters, "12 device-hours: training 12, evaluations 0"
    ]  # fmt: skip
    stated: Any = SimpleNamespace(
        device_seconds=lambda tasks: (7200.0 * len(tasks), 1800.0), rates=RATES["H200"], timed=False
    )
    hours = "6.5 device-hours of H200: training 6, evaluations 0.5; at 2 an hour 13.00"
    assert list(price_lines(plan, stated, plan.tasks, 2.0)) == [parameters, hours]
    both = timed(lab, plan, 4.0, device="H200")
    assert list(price_lines(plan, both, plan.tasks, None))[1].startswith("12 device-hours: ")
    assert list(price_lines(plan, Forecast(lab), plan.tasks, None)) == [parameters]
    with pytest.raises(UserError, match=r"^--price-per-hour: no time is predicted here"):
        list(price_lines(plan, Forecast(lab), plan.tasks, 2.5))


def test_evaluations_of_images_have_their_times_by_kind_of_work() -> None:
    plan = placements(evaluate=[samples(1), HELDOUT, samples(2, count=500)])

    def parts(spec: RunSpec, evaluation: Any) -> dict[str, float]:
        assert isinstance(spec, RunSpec)
        count = getattr(evaluation, "count", None)
        return {"sampling": 60.0, "decoding": 7200.0} if count == 1000 else {"sampling": 60.0}

    def forecast(once: Mapping[str, float]) -> Any:
        return SimpleNamespace(
            rates=RATES["H200"], parts=parts, references=lambda spec, evaluation: once
        )

    rates = f"rates of H200, {RATES['H200'].source}"
    assert list(evaluation_lines(plan, forecast({}))) == [
        "fd@1k of one run: sampling 60 s, decoding 2.0 h", rates
    ]  # fmt: skip
    assert list(evaluation_lines(plan, forecast({"features": 30.0}))) == [
        "fd@1k of one run: sampling 60 s, decoding 2.0 h;"
        " references once for the lab: features 30 s",
        rates,
    ]
    assert list(evaluation_lines(placements(), forecast({}))) == []
    assert list(evaluation_lines(plan, Forecast(Lab.at()))) == []


def test_sampling_in_exact_fp32_is_named_and_bf16_is_not() -> None:
    faster = samples(2, count=500, sampler={"precision": "bf16"})
    exact = (
        "sampled in exact fp32 on a GPU: fd@1k; sampler.precision=bf16 is another evaluation,"
        " with numbers of its own"
    )
    plan = placements(evaluate=[samples(1), faster, HELDOUT])
    assert list(exact_sampling(plan, None)) == [exact]
    assert list(exact_sampling(plan, RATES["H200"])) == [
        f"{exact}, 15 times faster by stated rates of H200"
    ]
    assert list(exact_sampling(placements(evaluate=[faster, HELDOUT]), None)) == []


def test_limits_of_a_budget_are_said_with_what_is_spent(lab: Lab) -> None:
    budget = {"flops": 1e12, "hours": 2.5, "trials": 9}
    plan = placements(budget=budget)
    opened = Budget(lab, plan, lambda task: 60.0)
    assert list(budget_lines(plan, opened, plan.tasks, 1)) == [
        "budget: 1.00e+12 training FLOPs (0.00e+00 spent), 2.5 h (0 h spent), 9 trials (0 started):"
        " 2 of 3 open runs fit",
        "not started, in the order of the plan: 0->4 s=0.5 seed 0",
    ]


SEARCH = {"trials": 2, "startup": 2, "objectives": ["heldout/loss"]}
SPACE = {"route": {"start": "0..3", "end": "4..7"}}
LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 32, "classes": 10}


def test_what_a_search_may_run_counts_where_nothing_is_certain(lab: Lab) -> None:
    """Its size, models, data and evaluations are then those of all cells."""
    kid = {"samples": {"metrics": ["kid"], "count": 1000, "at": [100, "end"]}}
    own = placements(
        axes={**SPACE, "model.width": [32, 64]}, search=SEARCH, baseline=None,
        evaluate=[HELDOUT, kid], fixed={"data": LATENTS},
    )  # fmt: skip
    assert own.tasks == ()
    lines = shown(own, lab)
    assert lines[2] == "every run is measured at 100, end: kid[heldout]@1k"
    assert lines[3].startswith("search by tpe: 2 of 32 cells, 1 run each, for heldout/loss; ")
    assert lines[5] == "0 runs of tiny, 2 models on latents, 400 steps of 16: 0 baselines, 0 trials"
    (parameters,) = price_lines(own, Forecast(lab), [], None)
    assert parameters.startswith("parameters: DiT-12x32/2 ") and ", DiT-12x64/2 " in parameters
    assert evaluation_times(own) == ["kid[heldout]@1k at 100", "kid[heldout]@1k"]


def evaluation_times(plan: Plan) -> list[str]:
    """The evaluations whose time is said, each of which is of the first run of the plan."""
    first = (plan.tasks or plan.possible_tasks)[0].spec

    def parts(spec: RunSpec, evaluation: Any) -> dict[str, float]:
        assert spec == first and evaluation in plan.evaluations
        return {"sampling": 60.0, "decoding": 60.0}

    forecast: Any = SimpleNamespace(rates=RATES["H200"], parts=parts, references=parts)
    *lines, rates = evaluation_lines(plan, forecast)
    assert rates.startswith("rates of H200")
    return [line.partition(" of one run")[0] for line in lines]


def test_features_of_metrics_are_said_where_all_runs_have_one_source(lab: Lab) -> None:
    kid = {"samples": {"metrics": ["kid"], "count": 1000, "at": [100, "end"]}}
    for data, label in (([LATENTS], "kid[heldout]@1k"), ([LATENTS, {}], "kid@1k")):
        plan = placements(axes={"route": ["2->8"], "data": data}, evaluate=[kid])
        assert f"every run is measured at 100, end: {label}" in shown(plan, lab)


def test_times_of_evaluations_are_of_samples_and_of_a_single_run_too(lab: Lab) -> None:
    plan = placements(axes={}, evaluate=[HELDOUT, samples(1)])
    assert len(plan.tasks) == 1 and evaluation_times(plan) == ["fd@1k"]
    assert next(exact_sampling(plan, None)).startswith("sampled in exact fp32 on a GPU: fd@1k;")


def test_device_hours_have_three_digits_and_no_device_without_rates() -> None:
    plan = placements()
    stated: Any = SimpleNamespace(
        device_seconds=lambda tasks: (12345.6 * 3600, 78.9876 * 3600), rates=None, speeds={}
    )
    _, hours = price_lines(plan, stated, plan.tasks, 1.23456789)
    assert hours == (
        "1.24e+04 device-hours: training 1.23e+04, evaluations 79; at 1.23457 an hour 15,339.00"
    )


def test_a_budget_that_all_runs_fit_names_none(lab: Lab, tiny: Callable[..., RunSpec]) -> None:
    plan = planned(tiny, budget={"trials": 6})
    budget = Budget(lab, plan, lambda task: None)
    fits = "budget: 6 trials (0 started): 7 of 7 open runs fit"
    assert list(budget_lines(plan, budget, plan.open_tasks(lab), 1)) == [fits]
    five = planned(tiny, budget={"trials": 1})
    _, named = budget_lines(five, Budget(lab, five, lambda task: None), five.open_tasks(lab)[:7], 1)
    assert named.endswith("0->5 s=0.5 seed 0")


def test_a_search_over_its_budget_ends_early(lab: Lab) -> None:
    plan = placements(axes=SPACE, search={**SEARCH, "trials": 6}, budget={"trials": 2})
    budget = Budget(lab, plan, lambda task: None)
    assert list(budget_lines(plan, budget, plan.possible_tasks[:6], 1)) == [
        "budget: 2 trials (0 started): 3 of 6 open runs fit",
        "the search ends about 3 runs early",
    ]
