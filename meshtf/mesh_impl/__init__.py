"""The parts that backends share: devices, options, slices, and the collectives of a per-core program."""
