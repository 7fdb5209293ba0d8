"""Provenance of an evaluation beside its spec: data, decoder, weights and reference by digests."""

from __future__ import annotations

import torch

from tread_lab.config.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.config.metrics import by_extractor
from tread_lab.config.run import RunSpec
from tread_lab.data.autoencoder import DECODING
from tread_lab.data.source import open_data
from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.fidelity import sha256
from tread_lab.evaluate.reference_file import open_reference
from tread_lab.train.joining import systems_of
from tread_lab.train.provenance import named, plugins_of


def measured_with(run: RunSpec, spec: EvaluationSpec, device: torch.device) -> dict[str, str]:
    """Return name -> digest of everything that decides an evaluation and is in no spec.

    The arithmetic of the decoder is the device's, where latents become images.

    Raises:
        UserError: data, weights or a reference cannot be read.
    """
    data, heldout = named(run.data), open_data(run.data, "heldout")
    found = {f"held-out data {data}": heldout.fingerprint, **plugins_of(run)}
    for system in systems_of(run):
        found |= system.measured_with(run)
    if not isinstance(spec, SamplesSpec):
        return found
    found[f"decoder of {data}"] = heldout.decoder
    if spec.metrics and run.data.holds.latents:
        found[f"decoding of {data}"] = DECODING.get(device.type, "fp32")
    for extractor in by_extractor(spec.metrics, run.data.source):
        found[f"weights {extractor}"] = sha256(SPACES[extractor].weights())
    if spec.metrics and spec.reference is not None:
        file = open_reference(spec.reference, spec.metrics)
        found[f"reference {file.name}"] = file.digest
    return found
