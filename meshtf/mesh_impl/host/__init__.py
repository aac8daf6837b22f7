"""The machine that virtual CPUs run on: its memory, its caches, and how its processor multiplies."""
