"""Loops, branches and recomputation: operations with blocks of operations inside."""
