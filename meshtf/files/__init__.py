"""Files that may be another user's: only regular files are read, and nothing is written through a planted link."""
