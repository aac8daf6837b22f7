"""A process that runs batches of random programs: one JSON line in, one out. Started by the tests of this folder."""

from __future__ import annotations

import json
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is written must not come between the answers
    from random_programs.emission import Batch, run_batch

    import meshtf as mtf

    mtf.virtual_cpus(8)
    for line in sys.stdin:
        asked = json.loads(line)
        asked = {name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()}
        try:
            answer = {"differences": run_batch(Batch(**asked))}
        except Exception:
            # Drawing may fail, and planning, and a collective, after which this process is of no more use.
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
