"""All undocumented TensorFlow names that meshtf uses, with the reason and the public alternatives that were tried."""
