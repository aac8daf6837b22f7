"""The sizes from which on something pays on virtual CPUs: all that were fitted to a machine, each with its reason.

None of them changes a result. They were measured on two cores of an AMD EPYC with AVX-512.
"""

MOST_UNROLLED = 1024
"""Instructions of an unrolled loop. XLA compiles one or two hundred in a second."""

FEW_ROWS = 128
"""Rows of one core up to which one kernel works for all cores. With more of them a core keeps a processor busy, and
putting them together only copies. Eight convolutions of 8 rows each took 0.25 of the time in one kernel, of 32 rows 0.5
to 0.8, and eight products of 512 rows twice the time."""

WORTH_BYTES, WORTH_FLOPS = 1 << 18, 1 << 21
"""Bytes that the work of one core makes, or its FLOPs, from which on it is done once for cores that would do the same.
Calling a function takes as long as a processor needs for so much. The number of cores does not count, so that a core
runs the same segments on every mesh."""
