"""Inception of the published architecture with random numbers: its real weights are not shipped."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import torch
from torch_fidelity import feature_extractor_inceptionv3 as theirs


def write_random_inception(path: Path) -> Path:
    """Write a file in the published format with random numbers that keep their scale."""
    network = theirs.FeatureExtractorInceptionV3
    with (
        mock.patch.object(theirs, "load_state_dict_from_url", lambda *_, **__: {}),
        mock.patch.object(network, "load_state_dict", lambda *_: None),
    ):
        torch.manual_seed(0)
        made = network("inception-v3-compat", ["2048"])
    for module in made.modules():  # the default shrinks what it is given at every layer
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    torch.save(made.state_dict(), path)
    return path
