"""Local work of every core that several operations share, and what passes may know of it."""
