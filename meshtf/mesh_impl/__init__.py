"""The parts of backends: devices, options, slices, and the collectives of a per-core program."""
