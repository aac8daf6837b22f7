"""Every undocumented name of TensorFlow that meshtf uses: why, and which public way was tried."""
