"""Vocabularies: text as ids of tokens, and ids as text."""
