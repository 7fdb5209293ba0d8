"""The gap against what is saved: joules where they were metered, device-hours elsewhere."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.analysis.conftest import ENDINGS
from tests.synthetic import FD
from tread_lab.analysis.figures.pareto import draw_savings, savings
from tread_lab.analysis.figures.pareto import savings_caption as caption
from tread_lab.analysis.figures.style import PAGE, figure
from tread_lab.analysis.tables.ranking import formatted, ranking
from tread_lab.specs import UserError


def test_joules_saved_are_those_of_the_baseline_less_the_cells(metered_frame: pd.DataFrame) -> None:
    found = savings(metered_frame)
    assert found is not None and found.cost == "energy/joules"
    assert found.names == ("2->8", "0->8", "4->8", "0->10", "5->6")
    assert list(found.saved) == [18_000, 24_000, 10_000, 24_000, -3_000]
    assert found.share == pytest.approx([0.3, 0.4, 1 / 6, 0.4, -0.05])
    assert list(found.value) == [-0.002, 0.004, 0.001, 0.009, 0.002]
    assert (found.low[0], found.high[0]) == (-0.003, -0.001)


def test_each_trial_saves_of_its_own_baseline(metered_frame: pd.DataFrame) -> None:
    dense = metered_frame["role"] == "baseline"
    other = metered_frame[dense | (metered_frame["run"] == "2->8")].copy()
    other["run"], other["seed"] = other["run"] + "1", 1
    other["baseline"] = other["baseline"].map({"dense": "dense1"})
    other["energy/joules"] = [80_000.0, 40_000.0]
    frame = pd.concat([metered_frame, other], ignore_index=True)
    frame.attrs |= metered_frame.attrs
    found = savings(frame)
    assert found is not None and found.saved[0] == (18_000 + 40_000) / 2
    assert found.share[0] == pytest.approx((0.3 + 0.5) / 2)


@pytest.mark.parametrize("metered", [0, 2, 3])
def test_device_hours_stand_for_joules_that_few_runs_have(
    metered: int, metered_frame: pd.DataFrame
) -> None:
    metered_frame.loc[1 + metered :, "energy/joules"] = np.nan
    found = savings(metered_frame)
    assert found is not None
    if metered == 3:
        assert found.cost == "energy/joules" and list(found.saved) == [18_000, 24_000, 10_000]
        assert found.unknown == ("0->10", "5->6")
        assert "Not metered: 0\u219210 and 5\u21926." in caption(found, [])
    else:
        assert found.cost == "cost/device_hours" and found.unknown == ()
        assert found.saved == pytest.approx([0.5, 0.8, 0.3, 0.9, -0.1])


def test_a_baseline_without_a_meter_leaves_nothing_saved(metered_frame: pd.DataFrame) -> None:
    metered_frame.loc[0, "energy/joules"] = np.nan
    found = savings(metered_frame)
    assert found is not None and found.cost == "cost/device_hours"
    assert savings(metered_frame.drop(columns=["energy/joules", "cost/train_seconds"])) is None


def test_the_front_is_of_cells_that_neither_dense_nor_another_beats(
    metered_frame: pd.DataFrame,
) -> None:
    found = savings(metered_frame)
    assert found is not None
    assert list(found.front) == [True, True, False, False, False]
    assert not found.dense_front  # 2->8 is better and cheaper
    text = caption(found, ["4->8"])
    assert "saves as much of the energy: 2\u21928 (30%), 0\u21928 (40%)." in text
    assert text.endswith("Without room for a name: 4\u21928.")
    worse = savings(metered_frame[metered_frame["run"] != "2->8"])
    assert worse is not None and worse.dense_front


def test_quality_of_which_more_is_better_has_its_front_above(metered_frame: pd.DataFrame) -> None:
    found = savings(
        metered_frame.assign(**{"is@50k": [10.0, 9.0, 12.0, 9.5, 11.0, 13.0]}), "is@50k"
    )
    assert found is not None and found.metric == "delta/is@50k"
    assert list(found.value) == [-1, 2, -0.5, 1, 3]
    assert list(found.front) == [False, True, False, False, True]


def test_cells_without_a_number_are_named_with_their_state(paper_frame: pd.DataFrame) -> None:
    found = savings(paper_frame, FD)
    assert found is not None and len(found.saved) == 16 - len(ENDINGS)
    assert found.endings == {
        "diverged": ("0->10",), "failed": ("7->8",), "stopped": ("1->8",), "pending": ("0->3",)
    }  # fmt: skip
    assert found.cost == "cost/device_hours"
    k = found.names.index("2->8")
    assert found.saved[k] == pytest.approx(14 / 3600)  # 60 s less 2 s a block
    assert "No intervals: one seed." in caption(found, [])


def test_routes_at_two_rates_are_named_by_both(seeds_frame: pd.DataFrame) -> None:
    found = savings(seeds_frame)
    assert found is not None and found.names[:2] == ("0->4 s=0.5", "0->4 s=0.75")
    assert found.measured_as == "95% over 3 seeds"


def test_what_parents_spent_is_said_to_be_left_out(metered_frame: pd.DataFrame) -> None:
    flops = {"cost/train_flops": 1.0, "cost/family_flops": [1.0, 1.0, 2.0, 1.0, 1.0, 1.0]}
    found = savings(metered_frame.assign(**flops))
    assert found is not None
    assert "What was spent on runs that a cell starts from is not counted." in caption(found, [])


def test_dense_is_marked_axes_have_units_and_colours_say_better(
    metered_frame: pd.DataFrame,
) -> None:
    found = savings(metered_frame)
    assert found is not None
    _, (ax,) = figure(width=PAGE)
    assert draw_savings(found, ax) == []
    assert ax.get_xlabel() == "energy saved relative to dense (kJ)"
    assert ax.get_ylabel() == "Δ held-out loss" + r" ($\times 10^{-3}$)"
    (diamond,) = [line for line in ax.lines if line.get_marker() == "D"]
    assert (list(diamond.get_xdata()), list(diamond.get_ydata())) == ([0], [0])
    dots = {
        (line.get_xdata()[0], line.get_ydata()[0]): (to_hex(line.get_color()), line)
        for line in ax.lines
        if line.get_marker() == "o"
    }
    blue, better = dots[18.0, -2.0]
    orange, undecided = dots[10.0, 1.0]
    assert (blue, orange) == ("#0072b2", "#d55e00")
    assert (better.get_markerfacecolor(), undecided.get_markerfacecolor()) == ("#0072B2", "white")
    names = {text.get_text().replace(r"$\to$", "->") for text in ax.texts}
    assert names == {"dense", "2->8", "0->8", "4->8", "0->10", "5->6"}


def test_hours_and_large_energies_have_units_of_their_own(metered_frame: pd.DataFrame) -> None:
    labels = []
    for factor in (1e-3, 1e6):
        found = savings(
            metered_frame.assign(**{"energy/joules": factor * metered_frame["energy/joules"]})
        )
        assert found is not None
        _, (ax,) = figure(width=PAGE)
        draw_savings(found, ax)
        labels.append(ax.get_xlabel())
    hours = savings(metered_frame.drop(columns="energy/joules"))
    assert hours is not None
    _, (ax,) = figure(width=PAGE)
    draw_savings(hours, ax)
    assert [*labels, ax.get_xlabel()] == [
        "energy saved relative to dense (J)",
        "energy saved relative to dense (GJ)",
        "device-hours saved relative to dense (h)",
    ]


def test_an_unknown_metric_is_refused(metered_frame: pd.DataFrame) -> None:
    with pytest.raises(UserError, match="no metric 'gap/heldot'"):
        savings(metered_frame, "gap/heldot")


def test_hours_that_a_busy_machine_saved_are_starred_and_not_on_the_front(
    metered_frame: pd.DataFrame,
) -> None:
    """0->8 takes .29 of dense's hours at .90 of its FLOPs."""
    frame = metered_frame.drop(columns="energy/joules")
    hours = {"dense": 2.0, "2->8": 1.5, "0->8": 0.58, "4->8": 1.7, "0->10": 1.1, "5->6": 2.1}
    work = hours | {"0->8": 1.8}
    frame["cost/train_seconds"] = 3600 * frame["route"].map(hours)
    frame["cost/train_flops"] = 1e12 * frame["route"].map(work)
    found = savings(frame)
    assert found is not None and found.names == ("2->8", "0->8*", "4->8", "0->10", "5->6")
    assert not found.front[1] and found.front[0]
    assert "* The hours were disturbed by other work" in caption(found, [])
    assert "* The hours" not in caption(savings(frame.drop(columns="cost/train_flops")), [])
    texts = formatted(ranking(frame), "gap/heldout").set_index("route")["device-hours / dense"]
    assert texts["0->8"] == "0.29 (disturbed)" and texts["2->8"] == "0.75"
