"""Published numbers with their sources, kept apart from everything measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

TREAD = "TREAD, ICCV 2025 (arXiv 2501.04765, later versions)"

# By whose recipe a number was made. Numbers of two recipes differ by more than routing, so a run of
# tread-lab should be compared with numbers of its own process and sampler only.
UNSTATED = "not stated"
RECIPES = {
    "DiT": "the DiT paper's own: DDPM with learned variances, 250 sampling steps",
    "SiT": "the SiT paper's own: flow, 250 Euler-Maruyama steps of the SDE",
    "LightningDiT": "the LightningDiT paper's own",
    "EDM": "TREAD's: EDM, 40 deterministic Heun steps",
    "flow": "TREAD's official code: flow, 40 to 50 Euler steps of the ODE",
    UNSTATED: "the paper does not say",
}

# Fig. 8: DiT-B/2 on ImageNet-256, s = 0.5, FID less that of the dense baseline; (i, j) inclusive.
# The baseline's FID is 49.89. Baseline and best lie 6.4 and 6.7 above Table 2's FID-50K: probably
# the same 400K-step models, scored on fewer samples; the baseline's recipe is not stated.
FIG8_TITLE = "DiT-B/2, ImageNet-256 (published)"
TABLE5_TITLE = "DiT-B/2 (published: dense by DDPM, routed by EDM)"
FIG8: dict[tuple[int, int], float] = {
    (0, 2): 2.95,
    (0, 3): 2.59,
    (0, 4): 7.23,
    (0, 5): 0.92,
    (0, 6): -12.12,
    (0, 7): -15.71,
    (0, 8): -16.31,
    (0, 9): -14.82,
    (0, 10): 7.47,
    (7, 8): 0.61,
    (6, 8): 0.82,
    (5, 8): -4.84,
    (4, 8): -14.20,
    (3, 8): -16.31,
    (2, 8): -21.87,
    (1, 8): -21.68,
}

# First figure: DiT-XL/2 on ImageNet-256; (A100 GPU-hours, unguided FID-50K), digitised. The hours
# are four times the wall-clock hours that the first version reports, so four GPUs were timed. DiT's
# FIDs are the DiT paper's (recipe `DiT`), TREAD's are EDM's.
TEASER: dict[str, list[tuple[float, float]]] = {
    "DiT": [(240, 19.5), (1412, 10.7), (4204, 9.62)],
    "DiT + TREAD": [(55, 22.3), (73, 16.6), (92, 12.3), (113, 9.7), (147, 7.38), (257, 5.1)],
}


RWKV = "12 blocks; their width is not stated"
MAMBA = "probably DiS (Fei et al. 2024), 24 blocks of width 768"


def table2() -> pd.DataFrame:
    """Dense against TREAD by backbone and size: unguided FID-50K on ImageNet-256.

    DiT, SiT, RWKV and Mamba after 400K steps of batch 256; LightningDiT after 80K of batch 1,024.
    The dense numbers of DiT and SiT are those of their own papers, by another sampler and for DiT
    by another process: a difference marked with a dagger mixes routing with that change, and a
    dense run of tread-lab need not give the dense number.
    """
    rows = [
        ("DiT", "S/2", 33, 68.40, 47.04, "DiT", "EDM", ""),
        ("DiT", "B/2", 130, 43.47, 21.34, "DiT", "EDM", ""),
        ("DiT", "L/2", 458, 23.33, 9.10, "DiT", "EDM", ""),
        ("DiT", "XL/2", 675, 19.47, 7.38, "DiT", "EDM", ""),
        ("SiT", "S/2", 33, 57.60, 38.08, "SiT", "flow", ""),
        ("SiT", "B/2", 130, 33.00, 15.98, "SiT", "flow", "difference printed as 16.02"),
        ("SiT", "L/2", 458, 18.80, 5.91, "SiT", "flow", ""),
        ("SiT", "XL/2", 675, 17.20, 4.89, "SiT", "flow", "400 epochs in arXiv 2601.01608"),
        ("LightningDiT", "", 675, 5.14, 3.71, "LightningDiT", UNSTATED, "80K steps, batch 1,024"),
        ("RWKV", "", 210, 59.84, 53.79, UNSTATED, UNSTATED, RWKV),
        ("Mamba", "", 111, 69.39, 61.17, UNSTATED, UNSTATED, MAMBA),
    ]
    columns = ["backbone", "size", "parameters_M", "fid_dense", "fid_tread"]
    return _table("Table 2", [*columns, "recipe_dense", "recipe_tread", "remark"], rows)


def table4() -> pd.DataFrame:
    """Other data sets: FID@10K of 130M-parameter models after 400K steps.

    The numbers equal the first version's (arXiv v1) with two routes and an auxiliary loss.
    """
    rows = [
        ("ImageNet-512", 62.80, 40.90, UNSTATED, UNSTATED),
        ("MS-COCO", 35.68, 20.55, UNSTATED, UNSTATED),
    ]
    columns = ["dataset", "fid_dense", "fid_tread", "recipe_dense", "recipe_tread"]
    return _table("Table 4", columns, rows)


def table5() -> pd.DataFrame:
    """Selection rate on DiT-B/2, route 2->8: unguided FID-50K after 400K steps.

    The dense number is Table 2's, by the recipe of the DiT paper; the others compare with each
    other.
    """
    rows = [(0.0, 43.47, "DiT"), (0.25, 26.50, "EDM"), (0.5, 21.34, "EDM"), (0.75, 49.29, "EDM")]
    return _table("Table 5", ["selection_rate", "fid", "recipe"], rows)


def table6() -> pd.DataFrame:
    """Placement rule on DiT-XL/2: unguided FID-50K after 400K steps.

    How 1/6 and 2/3 are rounded at 28 blocks is not stated.
    """
    rows = [("relative", "1/6", "2/3", 18.81, "EDM"), ("absolute", "2", "B-4", 7.38, "EDM")]
    return _table("Table 6", ["rule", "start", "end", "fid", "recipe"], rows)


def table_s7() -> pd.DataFrame:
    """Parameters in millions."""
    rows = [("DiT", 675), ("DiT + TREAD", 675), ("MaskDiT", 730), ("SD-DiT", 740)]
    return _table("Table S7", ["model", "parameters_M"], rows)


def table_s8() -> pd.DataFrame:
    """Sizes and the route of each."""
    rows = [
        ("S", 384, 6, 12, "2->8"),
        ("B", 768, 12, 12, "2->8"),
        ("L", 1024, 16, 24, "2->20"),
        ("XL", 1152, 16, 28, "2->24"),
    ]
    return _table("Table S8", ["size", "width", "heads", "layers", "route"], rows)


def speed_ups() -> pd.DataFrame:
    """The printed speed-up factors of DiT-XL/2 with what each divides by what.

    All of them are time to equal FID: the hours dense training needs to reach a value over the
    hours the routed one needs to reach the same. The ratio of step times is only about 1.6.
    """
    rows = [
        ("9.55", "version 1", "DiT at about 2.34M steps, 351 h", "two routes at 400K, 36.8 h"),
        ("25.39", "version 1", "DiT at 7M steps, 1,051 h", "two routes at 450K, 41.4 h"),
        ("14", "version 2", "DiT at 2.35M steps, 1,412 GPU-h", "at its FID, see the figure"),
        ("37", "version 2", "DiT at 7M steps, 4,204 GPU-h", "at about 309K steps, 113.6 GPU-h"),
    ]
    frame = pd.DataFrame(rows, columns=["factor", "printed_in", "dense", "routed"])
    frame.attrs["source"] = f"{TREAD} and version 1"
    return frame


def mixed(table: pd.DataFrame) -> pd.Series[bool]:
    """Whether the dense and the routed number of each row are of two recipes."""
    return table["recipe_dense"] != table["recipe_tread"]


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "Table 2": table2,
    "Table 4": table4,
    "Table 5": table5,
    "Table 6": table6,
    "Table S7": table_s7,
    "Table S8": table_s8,
}


def _table(name: str, columns: list[str], rows: Sequence[tuple[object, ...]]) -> pd.DataFrame:
    """A frame that carries its source in `attrs["source"]`."""
    frame = pd.DataFrame(rows, columns=columns)
    frame.attrs["source"] = f"{TREAD}, {name}"
    return frame
