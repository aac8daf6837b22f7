"""The meshes that users make, one in each module. Only training and users choose one of them."""
