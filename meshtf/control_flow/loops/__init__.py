"""Loops: scan, while_loop and micro-batches are one operation, of which loop_spec says what it repeats."""
