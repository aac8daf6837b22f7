"""Gin of Mesh TensorFlow and T5 as gin of meshtf."""
