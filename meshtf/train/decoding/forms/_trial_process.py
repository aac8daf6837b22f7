"""A process that compiles one grammar with llguidance, and that another process can end.

It runs as a file, with the grammar as its input. The compiler rejects a grammar that is too large, but may work for
years on an intersection of patterns.
"""

import sys

import llguidance

# The tokens are all bytes: the vocabulary does not change whether compiling ends.
llguidance.LLMatcher(llguidance.LLTokenizer("byte"), sys.stdin.read(), log_level=0).compute_bitmask()
