"""Readers of the files beside another library's weights: tokenizer, begin token, generation."""
