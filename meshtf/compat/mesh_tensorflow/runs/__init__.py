"""The programs of a session's run or of eager execution: exports, updates and their starting values."""
