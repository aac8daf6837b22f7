"""Other libraries' names, for programs that people have."""
