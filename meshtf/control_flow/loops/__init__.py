"""Loops: `scan`, `while_loop` and micro-batches are one operation. A `LoopSpec` says what it repeats."""
