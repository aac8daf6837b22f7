"""Functions of TensorFlow as operations of the language."""
