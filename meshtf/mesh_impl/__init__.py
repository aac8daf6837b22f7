"""The backends: what runs a per-core program, and the collectives of each."""
