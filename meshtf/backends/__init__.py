"""The meshes that users make. Each is one module; nothing but training and users says which one is meant."""
