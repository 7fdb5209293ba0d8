"""The report as PDF: printed by a Chromium from the PATH, without a network or a window."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tread_lab.specs.errors import UserError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-pdf-header-footer")
LONGEST = 300  # seconds


def print_pdf(page: Path) -> Path:
    """Print a page beside itself, with the ending `.pdf`; return the path.

    Raises:
        UserError: there is no Chromium, or it printed nothing.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise UserError(f"no Chromium on the PATH; print {page} from a browser, or install one")
    path = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="print-", ignore_cleanup_errors=True) as folder:
        printed, sandbox = Path(folder) / "page.pdf", [] if os.geteuid() else ["--no-sandbox"]
        own = [f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"]
        command = [program, *FLAGS, *sandbox, *own, page.absolute().as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"{program} did not print {page}: {error}") from None
        if not printed.exists():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise UserError(f"{program} did not print {page}: {last}")
        shutil.copyfile(printed, path.with_suffix(".pdf.part"))
    return path.with_suffix(".pdf.part").replace(path)
