# An optional dependency, which the environment of the check does not have.
from typing import Any

def __getattr__(name: str) -> Any: ...
