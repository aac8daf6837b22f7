"""Local work that several operations share, and the facts about it that passes may use."""
