"""Optional packages with data sets, and the files that they write."""
