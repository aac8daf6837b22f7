"""The sizes from which on something pays: all numbers that were fitted to a machine, each with its reason.

None of them changes a result; a wrong one only costs time. They were measured on two cores of an AMD EPYC with AVX-512.
A number that follows from an algorithm or from arithmetic, such as the longest exact sum, stands where it is used.
"""

OPERATION_BYTES = 1 << 17
"""Bytes that a processor reads and writes while TensorFlow starts one operation, some ten microseconds.

Copying less is cheaper than an operation more: smaller slices travel together within a process, and a lookup of rows
copies them. A lookup of larger rows copies none."""

OPERATION_FLOPS = 1 << 20
"""FLOPs in the same time. Work with fewer is light: it may wait for others, and others never wait for it."""

UNTRACED_BYTES = 128 * OPERATION_BYTES
"""Bytes that all cores make, up to which a program that runs once, as that of initial values, is not traced. Tracing an
operation takes ten times as long as starting it, and initial values of a small model take a hundred."""

SMALL_ELEMENTS = OPERATION_BYTES // 8
"""Elements of an array that are read and written in this time, four bytes each. For fewer elements, a branch or a
second collective costs more than it saves."""

ADDED_IN_PLACE_BYTES = OPERATION_BYTES // 2
"""Bytes of an array that are read and written in this time. Smaller gradients of layers are stacked and added at once,
since adding each costs more than the memory is worth."""

CALL_BYTES, CALL_FLOPS = 2 * OPERATION_BYTES, 2 * OPERATION_FLOPS
"""Bytes that the work of one core makes, or its FLOPs, from which on it is done once for cores that would do the same.
Calling a function takes as long as two operations. The number of cores does not count, so that a core runs the same
segments on every mesh."""

FUSED_UPDATE_ELEMENTS = 1 << 12
"""Elements of the largest slice from which on a program's updates become one instruction each, small ones too. A fused
update saves a dozen operations, so it pays for fewer elements than one operation does."""

COMPILED_ITERATIONS = 32
"""Iterations from which on a loop is compiled. In decoding with a small Transformer, compiling takes about as much
processor time as 130 iterations then save on one core, and 210 on eight virtual CPUs: with 32, it has paid after four
to seven runs."""

MOST_UNROLLED = 1024
"""Instructions of an unrolled loop. XLA compiles one or two hundred in a second."""

MOST_INSTRUCTIONS = 16 * MOST_UNROLLED
"""Instructions of a program for GPUs whose layers are unrolled. A training step of GPT-2 with 12 layers has 6,600 then.
JAX's step of the same model, unrolled, had its first result within 17 s on the machine of an H200, which is 390
instructions in a second. So these take about 40 s, and leave a third of a minute for slower machines."""

ITERATIONS_PER_CHECK = COMPILED_ITERATIONS // 4
"""Iterations of a loop on a GPU before its host asks whether there is another one. On an H200 asking takes 0.04 ms, and
a token of a small Transformer 0.12 ms. So asking every time adds a third to the time, and every eighth time 4%. Up to
seven iterations are made in vain, few against those of a loop that is worth compiling."""

QUICK_ITERATION_BYTES = 4096 * OPERATION_BYTES
"""Bytes that an iteration reads, up to which it is quick. An H200 reads as much in 0.11 ms, and a model of so many
weights has more to do than that. For larger ones, tokens in vain would cost more than asking."""

FEW_ROWS = 128
"""Rows of one core up to which one kernel works for all cores. With more of them a core keeps a processor busy, and
putting them together only copies. Eight convolutions of 8 rows each took 0.25 of the time in one kernel, of 32 rows 0.5
to 0.8, and eight products of 512 rows twice the time."""

LARGEST_TILE = 256
"""Rows of the largest tile of a product of groups of rows. With so many, reading the matrix no longer takes the most
time; more rows would only be wasted on groups that do not fill them."""

WIDE_ROW_BYTES = 1 << 12
"""Bytes of a row from which on it is written as wide elements. For a shorter row the two bitcasts cost what they
save."""

ROWS_IN_PLACE_BYTES = 8 * OPERATION_BYTES
"""Bytes of what a loop carries from which on rows are written to it where they are. That takes some ten operations more
than a copy."""

MOST_PIECES = 64
"""Pieces of memory in which one part of a gradient may lie, if it is added in place. More pieces are so short that
adding to them is slow."""

MOST_MULTIPLIED_QUERIES = 16
"""Queries of a beam search that each key is multiplied with rather than copied: the beams, times the heads of queries
that share a head of keys. Products grow with their number, and copies do not. A batch takes this share of its time with
copies: 0.6 to 0.85 for 2 to 8 queries, 0.94 to 1 for 16, and 1 to 1.3 for 32."""
