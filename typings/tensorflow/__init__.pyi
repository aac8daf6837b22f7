# The stubs that pyright brings along are of an older TensorFlow, and lack or mistype much of what this one has.
from typing import Any

def __getattr__(name: str) -> Any: ...
