"""Loops: `scan`, `while_loop` and micro-batches share one operation. A `LoopSpec` describes each loop."""
