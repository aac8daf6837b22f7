"""Patterns such as "batch (heads d_kv) -> batch heads d_kv": text becomes a frozen plan of names and sizes."""
