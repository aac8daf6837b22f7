# gin has no type hints, and what pyright infers from its decorators is wrong.
from typing import Any

def __getattr__(name: str) -> Any: ...
