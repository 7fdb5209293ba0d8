"""Names of metrics as MLflow accepts them, and of parameters as it stores them."""

from __future__ import annotations

import re

PARAMETERS = {  # columns of frames -> parameters, so that stored filters go on finding runs
    "start": "route_start",
    "end": "route_end",
    "length": "route_length",
    "rate": "selection_rate",
}
_SAMPLES = re.compile(r"(?P<metric>[^\[@]+)(?:\[(?P<bracket>[^\]]+)\])?@(?P<count>\d+k?)")


def to_mlflow(name: str) -> str:
    """`fd[fashion16-v1]@1k w=1.5 SG(0.5/0.9)` -> `fd:fashion16-v1:1k w:1.5 SG 0.5/0.9`.

    MLflow accepts letters, digits and `_ - . : /` and the space; a name of these stays as it is.
    Any other character becomes `_`.
    """
    metric, space, setting = name.partition(" ")
    if found := _SAMPLES.fullmatch(metric):
        metric = ":".join(filter(None, found.group("metric", "bracket", "count"))).replace(",", ":")
    setting = re.sub(r"->|,", "-", setting).replace("=", ":")
    setting = re.sub(r"(?<=:)\[|[\])]+", "", setting)
    return re.sub(r"[^\w/.\- :]", "_", metric + space + re.sub(r"[(+]", " ", setting))
