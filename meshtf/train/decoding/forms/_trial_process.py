"""A process that compiles one grammar with llguidance, and that another process can end.

Run as a file, with the grammar as its input. The compiler gives up a grammar that is too large, but not an intersection
of patterns that takes it years.
"""

import sys

import llguidance

# The tokens are all bytes, since a vocabulary changes nothing of what never ends.
llguidance.LLMatcher(llguidance.LLTokenizer("byte"), sys.stdin.read(), log_level=0).compute_bitmask()
