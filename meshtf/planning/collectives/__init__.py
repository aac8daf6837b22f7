"""Each kind of collective in a file of its own: its bytes, its scratch memory, its emission and its interpretation."""
