"""Published numbers with their sources, kept apart from everything measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

TREAD = "TREAD, ICCV 2025 (arXiv 2501.04765, later versions)"
VERSION_1 = "TREAD, version 1 (arXiv 2501.04765v1)"
SPARSE = "Guiding Token-Sparse Diffusion Models (arXiv 2601.01608)"

# By whose recipe a number was made. Numbers of two recipes differ by more than routing, so a run of
# tread-lab should be compared with numbers of its own process and sampler only.
UNSTATED = "not stated"
# The scaling study was decoded by one, the final numbers by the other (the paper's appendix).
VAE = "sd-vae-ft-ema"
DIT_DECODERS = f"sd-vae-ft-mse; 9.62 and 2.27: {VAE}"
RECIPE_COLUMNS = ["recipe", "process", "sampler", "batch", "decoder"]

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


NAN = float("nan")  # not printed


def table1() -> pd.DataFrame:
    """Systems of DiT-XL/2's size on ImageNet-256: FID-50K, sFID, IS, precision and recall.

    (F) is a dense phase of 60 epochs at the end, batch 1,024. TREAD states neither its weights of
    guidance nor the interval; those of the other papers are their own.
    """
    rows = [
        ("SD-DiT", 480, "none", 7.21, 5.17, 144.68, 0.72, 0.61, "SD-DiT"),
        ("MDT", 1300, "none", 6.23, 5.23, 143.02, 0.71, 0.65, "MDT"),
        ("SiT", 1400, "none", 8.61, 6.32, 131.65, 0.68, 0.67, "SiT"),
        ("MaskDiT", 1600, "none", 5.69, 10.34, 177.99, 0.74, 0.60, "MaskDiT"),
        ("DiT + REPA", 170, "none", 9.60, NAN, NAN, NAN, NAN, "REPA"),
        ("DiT", 1400, "none", 9.62, 6.85, 121.50, 0.67, 0.67, "DiT"),
        ("TREAD", 160, "none", 4.96, 6.83, 192.49, 0.79, 0.54, "EDM"),
        ("TREAD", 680, "none", 3.93, 7.32, 211.35, 0.76, 0.60, "EDM"),
        ("SD-DiT", 480, "CFG", 3.23, NAN, NAN, NAN, NAN, "SD-DiT"),
        ("MDT", 1300, "CFG", 1.79, 4.57, 283.01, 0.81, 0.61, "MDT"),
        ("MaskDiT", 1600, "CFG", 2.28, 5.67, 276.56, 0.80, 0.61, "MaskDiT"),
        ("SiT", 1400, "CFG", 2.06, 4.50, 270.30, 0.82, 0.59, "SiT"),
        ("DiT", 1400, "CFG", 2.27, 4.60, 278.24, 0.83, 0.57, "DiT"),
        ("TREAD (F)", 220, "CFG", 2.76, 4.61, 252.78, 0.83, 0.57, "EDM"),
        ("TREAD (F)", 740, "CFG", 2.09, 4.46, 269.07, 0.81, 0.62, "EDM"),
        ("TREAD (F)", 740, "CFG in an interval", 1.69, 4.73, 292.66, 0.81, 0.63, "EDM"),
    ]
    return _table("Table 1", ["system", "epochs", "guidance", *_ADM, "recipe"], rows)


_ADM = ["fid", "sfid", "is", "precision", "recall"]


def table2() -> pd.DataFrame:
    """Dense against TREAD by backbone and size: unguided FID-50K on ImageNet-256.

    DiT, SiT, RWKV and Mamba after 400K steps of batch 256; LightningDiT after 80K of batch 1,024.
    The dense numbers of DiT and SiT are those of their own papers, so a dense run of tread-lab need
    not give them.
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
        ("LightningDiT", "", 675, 5.14, 3.71, "LightningDiT", UNSTATED, ""),
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


def table_s8_optimisation() -> pd.DataFrame:
    """The recipe of all sizes: 400K steps. The dense phase (F) has batch 1,024 and rate 1e-5.

    Epsilon, clipping and warm-up are the official code's; the supplement does not name them.
    """
    rows = [
        ("optimizer", "AdamW"),
        ("lr", "1e-4"),
        ("schedule", "constant"),
        ("betas", "0.9, 0.999"),
        ("eps", "1e-8"),
        ("weight_decay", "0"),
        ("warmup", "0"),
        ("clip", "none"),
        ("batch", "256"),
        ("steps", "400000"),
        ("ema", "0.9999"),
        ("label_drop", "0.1"),
        ("precision", "bf16"),
    ]
    return _table("Table S8", ["setting", "value"], rows)


def figure8() -> pd.DataFrame:
    """Route placement on DiT-B/2 at s = 0.5: FID less that of the dense baseline, 49.89.

    Baseline and best lie 6.4 and 6.7 above Table 2's FID-50K: probably scored on fewer samples.
    """
    rows = [(f"{i}->{j}", change, UNSTATED) for (i, j), change in FIG8.items()]
    return _table("Fig. 8", ["route", "fid_change", "recipe"], rows)


def sparse_guidance_1() -> pd.DataFrame:
    """Guidance of token-sparse SiT-XL/2 after 160 epochs; SG is sparse guidance."""
    rows = [
        ("routing", "CFG", 2.95, 4.84, 233.3, 0.82, 0.56, UNSTATED),
        ("routing", "SG", 2.07, 3.98, 223.4, 0.80, 0.58, UNSTATED),
        ("masking", "CFG", 5.82, 13.00, 227.8, 0.80, 0.45, UNSTATED),
        ("masking", "SG", 5.73, 11.99, 249.0, 0.83, 0.42, UNSTATED),
    ]
    columns = ["trained by", "guidance", *_ADM, "recipe"]
    return _table("Table 1", columns, rows, source=SPARSE)


def sparse_guidance_2() -> pd.DataFrame:
    """Guidance of SiT-XL/2 with a route 2->24 after 400 epochs: FID-50K and GMAC of a step.

    SG (FLOPs) has rates .5 and .9 of one checkpoint; SG (FID) a weak branch of 50K steps with rates
    that fall from .6 to 0 over sampling, the strong one's rise. GMAC lack attention's products.
    """
    rows = [
        ("none", 4.89, 114.42, UNSTATED),
        ("CFG", 2.57, 228.84, UNSTATED),
        ("autoguidance", 2.95, NAN, UNSTATED),
        ("independent condition guidance", 2.81, NAN, UNSTATED),
        ("SG (FLOPs)", 2.14, 97.67, UNSTATED),
        ("SG (FID)", 1.58, 173.16, UNSTATED),
    ]
    return _table("Table 2", ["guidance", "fid", "gmac", "recipe"], rows, source=SPARSE)


def version_1_fids() -> pd.DataFrame:
    """400K steps, unguided FID-50K: TREAD-1 has one route, TREAD-2 two, with their loss."""
    rows = [
        ("S", "dense", 68.40, "DiT"),
        ("S", "TREAD-1", 58.65, "EDM"),
        ("S", "TREAD-2", 54.79, "EDM"),
        ("B", "dense", 43.47, "DiT"),
        ("B", "random end", 36.80, "EDM"),
        ("B", "TREAD-1", 35.78, "EDM"),
        ("B", "TREAD-2", 28.80, "EDM"),
        ("XL", "dense", 19.47, "DiT"),
        ("XL", "TREAD-1", 12.47, "EDM"),
        ("XL", "TREAD-2", 10.63, "EDM"),
    ]
    return _table("version 1", ["size", "system", "fid", "recipe"], rows, source=VERSION_1)


def recipes() -> pd.DataFrame:
    """What stands behind each recipe. A blank is what we could not read."""
    rows = [
        ("DiT", "DDPM, learned variance", "250 DDPM steps", "256", DIT_DECODERS),
        ("SiT", "flow, uniform t", "250 Euler-Maruyama steps of the SDE", "256", ""),
        ("LightningDiT", "flow", "250 Euler steps", "1,024", "VA-VAE"),
        ("EDM", "TREAD's: EDM", "40 Heun steps", "256", VAE),
        ("flow", "TREAD's code: flow, logit-normal t", "40 to 50 Euler steps", "256", VAE),
        ("MDT", "DDPM, masked latents, at a rate of 3e-4", "250 steps", "256", ""),
        ("SD-DiT", "a student and its teacher", "", "", ""),
        ("MaskDiT", "EDM, masked tokens", "", "1,024", ""),
        ("REPA", "as TREAD quotes it", "", "", ""),
    ]
    return pd.DataFrame(rows, columns=RECIPE_COLUMNS)


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
    "Table 1": table1,
    "Table 2": table2,
    "Table 4": table4,
    "Table 5": table5,
    "Table 6": table6,
    "Table S7": table_s7,
    "Table S8": table_s8,
    "Table S8, optimisation": table_s8_optimisation,
    "Fig. 8": figure8,
    "Sparse guidance, Table 1": sparse_guidance_1,
    "Sparse guidance, Table 2": sparse_guidance_2,
    "Version 1, FID": version_1_fids,
}


def _table(
    name: str, columns: list[str], rows: Sequence[tuple[object, ...]], *, source: str = TREAD
) -> pd.DataFrame:
    """A frame that carries its source in `attrs["source"]`."""
    frame = pd.DataFrame(rows, columns=columns)
    frame.attrs["source"] = f"{source}, {name}"
    return frame
