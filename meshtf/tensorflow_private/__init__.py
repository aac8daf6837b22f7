"""All names of TensorFlow that it does not document, and that meshtf needs: see README.md beside this."""
