"""Sources of text: what there is to learn from, as documents."""
