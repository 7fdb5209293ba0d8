"""Files that runs read and users bring: origin, size, digest, and whether they are here."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tread_lab.data.autoencoder import VARIABLE as AUTOENCODER
from tread_lab.metrics.dinov2 import VARIABLE as DINOV2
from tread_lab.metrics.dinov2 import dinov2_weights
from tread_lab.metrics.fidelity import SHA256, inception_weights
from tread_lab.metrics.fidelity import STAND_IN_FILE as MARK
from tread_lab.metrics.fidelity import VARIABLE as INCEPTION
from tread_lab.metrics.pretrained import network_config
from tread_lab.metrics.reference_file import VARIABLE as REFERENCES
from tread_lab.metrics.reference_file import open_reference
from tread_lab.specs.errors import UserError
from tread_lab.specs.metrics import ReferenceSpec

ENCODER, TEXT_ENCODER = "TREAD_LAB_ENCODER", "TREAD_LAB_TEXT_ENCODER"
STANDS_IN = "a stand-in of random numbers"


@dataclass(frozen=True)
class RequiredFile:
    """A file or folder that users bring.

    Attributes:
        purpose: what asks for it.
        size: of the published one, as its source says.
        named_by: the variable, option or field that says where it lies.
        check: raises `UserError` unless what a variable names is the right thing; `None` for what
            no variable names.
        sha256: of the published file, where it is known and checked.
    """

    purpose: str
    origin: str
    size: str
    named_by: str
    check: Callable[[Path], object] | None = None
    sha256: str = ""

    def absence(self) -> str | None:
        """Return why it is not here, empty if it is; `None` for what no variable names."""
        if self.check is None:
            return None
        if not (where := os.environ.get(self.named_by)):
            return f"{self.named_by} is not set"
        path = Path(where).expanduser()
        try:
            self.check(path)
        except UserError as error:
            return str(error)
        return STANDS_IN if (path / MARK).exists() or path.name == MARK else ""


def _adm(folder: Path) -> None:
    open_reference(ReferenceSpec(name="imagenet256"), ["fid"])


REQUIRED = {
    "ImageNet": RequiredFile(
        "`data encode`", "ILSVRC 2012, under its terms", "140 GB", "data encode IMAGES"
    ),
    "latents": RequiredFile(
        "every run on latents", "`tread-lab data encode`", "10.5 GB", "data.path"
    ),
    "autoencoder": RequiredFile(
        "`data encode`, samples of latents",
        "stabilityai/sd-vae-ft-ema",
        "335 MB",
        AUTOENCODER,
        lambda folder: network_config(folder, AUTOENCODER, "diffusers", latent_channels=4),
    ),
    "Inception-2015": RequiredFile(
        "fid, sfid, is, kid",
        "torch-fidelity's releases, weights-inception-2015-12-05-6726825d.pth",
        "96 MB",
        INCEPTION,
        lambda file: inception_weights(),
        SHA256,
    ),
    "reference": RequiredFile(
        "metrics with `reference: imagenet256`",
        "ADM's VIRTUAL_imagenet256_labeled.npz, or `tread-lab data reference`",
        "2 GB",
        REFERENCES,
        _adm,
    ),
    "DINOv2 base": RequiredFile(
        "REPA",
        "facebook/dinov2-base",
        "350 MB",
        ENCODER,
        lambda folder: network_config(
            folder, ENCODER, "transformers", hidden_size=768, patch_size=14
        ),
    ),
    "DINOv2 large": RequiredFile(
        "fd_dinov2",
        "facebook/dinov2-large",
        "1.2 GB",
        DINOV2,
        lambda folder: dinov2_weights(),
    ),
    "CLIP text encoder": RequiredFile(
        "captions",
        "openai/clip-vit-large-patch14",
        "1.7 GB",
        TEXT_ENCODER,
        lambda folder: network_config(folder, TEXT_ENCODER, "transformers", hidden_size=768),
    ),
}


def absences() -> dict[str, str | None]:
    """Return why each file is not here, see `RequiredFile.absence`."""
    return {name: file.absence() for name, file in REQUIRED.items()}
