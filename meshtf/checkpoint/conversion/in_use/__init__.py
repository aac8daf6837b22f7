"""Reads the files beside another library's weights: tokenizer, begin token, settings of generation."""
