"""Search for layouts, and plans of layouts, for the programs."""
