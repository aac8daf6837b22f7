"""The sizes above which an optimization pays: all numbers that were fitted to a machine, each with its reason.

None of them changes a result; a wrong one only costs time. They were measured on two cores of an AMD EPYC with AVX-512.
A number that follows from an algorithm or from arithmetic, such as the longest exact sum, is kept where it is used.
"""

OPERATION_BYTES = 1 << 17
"""Bytes that a processor reads and writes while TensorFlow starts one operation, about ten microseconds.

Copying fewer bytes is cheaper than one more operation. So smaller slices are sent together within a process, and a
lookup of rows copies them. A lookup of larger rows copies nothing."""

OPERATION_FLOPS = 1 << 20
"""FLOPs in the same time. Work with fewer FLOPs is light: it may wait for other work, which never waits for it."""

UNTRACED_BYTES = 128 * OPERATION_BYTES
"""The most bytes that all cores make in a program that runs once and is not traced, such as that of initial values.
Tracing an operation takes ten times as long as starting it, and initial values of a small model take a hundred
operations."""

SMALL_ELEMENTS = OPERATION_BYTES // 8
"""Elements of an array, of four bytes each, that are read and written in the time of `OPERATION_BYTES`. For fewer
elements, a branch or a second collective costs more than it saves."""

ADDED_IN_PLACE_BYTES = OPERATION_BYTES // 2
"""Bytes of an array that are read and written in the time of `OPERATION_BYTES`. Smaller gradients of layers are stacked
and added at once, since adding each costs more than the memory is worth."""

CALL_BYTES, CALL_FLOPS = 2 * OPERATION_BYTES, 2 * OPERATION_FLOPS
"""The least bytes that one core's work makes, or its FLOPs, for which identical work of several cores is done once.
Calling a function takes as long as two operations. The number of cores does not matter, so that a core runs the same
segments on every mesh."""

FUSED_UPDATE_ELEMENTS = 1 << 12
"""The least elements of a program's largest slice for which every update, also a small one, becomes one instruction. A
fused update saves a dozen operations, so it pays for fewer elements than one operation does."""

COMPILED_ITERATIONS = 32
"""The least iterations for which a loop is compiled. In decoding with a small Transformer, compiling takes the
processor time that 130 compiled iterations save on one core, and 210 on eight virtual CPUs. With 32 iterations, it pays
after four to seven runs."""

MOST_UNROLLED = 1024
"""The most instructions of an unrolled loop. XLA compiles one or two hundred in a second."""

MOST_INSTRUCTIONS = 16 * MOST_UNROLLED
"""The most instructions of a program for GPUs whose layers are unrolled. An unrolled training step of GPT-2 with 12
layers has 6,600. JAX's unrolled step of the same model returned its first result within 17 s on the machine of an H200,
which is 390 instructions per second. So this many take about 40 s, which leaves 20 s for slower machines."""

ITERATIONS_PER_CHECK = COMPILED_ITERATIONS // 4
"""Iterations of a loop on a GPU between the host's checks whether to continue. On an H200 a check takes 0.04 ms, and a
token of a small Transformer 0.12 ms. So checking every time adds a third to the time, and every eighth time 4%. Up to
seven iterations are wasted, which is few in a loop that is worth compiling."""

QUICK_ITERATION_BYTES = 4096 * OPERATION_BYTES
"""The most bytes that a quick iteration reads. An H200 reads this much in 0.11 ms, and a model with this many bytes of
weights also has other work. For larger iterations, wasted tokens would cost more than checking."""

FEW_ROWS = 128
"""The most rows of one core for which one kernel computes for all cores. With more rows a core keeps a processor busy,
and concatenating them only copies. In one kernel, eight convolutions of 8 rows each took 0.25 of the time, of 32 rows
0.5 to 0.8, and eight products of 512 rows twice the time."""

LARGEST_TILE = 256
"""Rows of the largest tile in a product of groups of rows. With this many, reading the matrix no longer takes most of
the time. More rows would only be wasted on groups that do not fill them."""

WIDE_ROW_BYTES = 1 << 12
"""The least bytes of a row that is written as wide elements. For a shorter row, two bitcasts cost what they save."""

ROWS_IN_PLACE_BYTES = 8 * OPERATION_BYTES
"""The least bytes of a carried value whose rows a loop writes in place. That takes about ten operations more than a
copy."""

MOST_PIECES = 64
"""The most pieces of memory that one part of a gradient may consist of, if it is added in place. With more, the pieces
are so short that adding to them is slow."""

MOST_MULTIPLIED_QUERIES = 16
"""The most queries of a beam search for which each key is multiplied by all of them, and no keys are copied. The number
is that of beams times query heads per key head. The cost of products grows with it, the cost of copies does not.
Relative to copying, a batch took 0.6 to 0.85 of the time for 2 to 8 queries, 0.94 to 1 for 16, and 1 to 1.3 for 32."""
