"""Where streams are looked for by name."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_ROOT = "headgate-data"
ROOT_VARIABLE = "HEADGATE_ROOT"


def default_root() -> Path:
    """Where streams are looked for by name when no root is given."""
    return Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
