"""Makes the runner of HLO, which the tests of this folder share, importable from them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
