"""The mesh implementations, one in each module. Users or training choose one; no other code depends on them."""
