"""Stands for meshtf-train: writes the metrics of a run whose loss is the learning rate over the step."""

import json
import signal
import sys
import time
from pathlib import Path

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
folder = Path(next(a for a in sys.argv if a.startswith("--model_dir=")).partition("=")[2])
texts = [a.partition("=")[2] for a in sys.argv if a.startswith("--gin_param=AdamWOptimizer.learning_rate")]
rate = float(texts[-1].partition("=")[2])
folder.mkdir(exist_ok=True)
with (folder / "begun").open("a") as begun:
    begun.write("x")
if rate == 7:
    sys.exit("meshtf-train: error: seven is wrong")
if rate == 8:
    sys.exit(3)
with (folder / "metrics.jsonl").open("a") as file:
    for step in range(1, 4000 if rate >= 100 else 4):
        file.write(json.dumps({"step": step, "held_out_loss": rate / step}) + "\n")
        file.flush()
        time.sleep(0.05 if rate >= 100 else 0)
    file.write(json.dumps({"step": 3, "variables_sha256": "0"}) + "\n")
