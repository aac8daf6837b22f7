"""Sources of text: the documents to learn from."""
