"""Annotations of tensors: `mtf.f32["batch:64 pixels:784"]` states an element type and a shape."""
