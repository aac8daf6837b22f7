"""The wing that makes virtual CPUs fast. The plain emission does the same without it."""
