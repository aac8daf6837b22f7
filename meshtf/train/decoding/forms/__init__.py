"""Forms of added text: JSON schemas, grammars and regular expressions."""
