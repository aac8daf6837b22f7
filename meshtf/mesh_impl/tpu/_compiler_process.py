"""A process that compiles one program with libtpu, since a native compiler may abort its process.

It is run as a file, with a folder. There it reads `request.json` and `program.hlo`, and writes `answer.json` and
`optimized.hlo`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import types
from pathlib import Path

PACKAGE = Path(__file__).parents[2]


def main(folder: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    request = json.loads((folder / "request.json").read_text())
    answer = _compiled(request, folder)
    (folder / "answer.json").write_text(json.dumps(answer))


def _compiled(request: dict, folder: Path) -> dict:
    # Makes the package without running its __init__, which would spend seconds on importing TensorFlow.
    sys.modules["meshtf"] = package = types.ModuleType("meshtf")
    package.__path__ = [str(PACKAGE)]
    from meshtf.mesh_impl.pjrt import pjrt

    pjrt.load_tpu_compiler(request["library"])
    devices = pjrt.topology_devices(request["topology"], request["options"])
    began = time.monotonic()
    try:
        cores = [devices[tuple(place)] for place in request["places"]]
        compiled = pjrt.compile_ahead((folder / "program.hlo").read_bytes(), cores)
    except pjrt.PjrtError as error:
        return {"refused": str(error)}
    (folder / "optimized.hlo").write_text(compiled.hlo)
    seconds = time.monotonic() - began
    return {"memory": dict(compiled.memory), "cost": dict(compiled.cost), "seconds": seconds}


def _end_with_parent() -> None:
    """Ends this process when its parent ends. Standard input is then closed; nothing is ever written to it."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # native libraries may abort during a normal exit
