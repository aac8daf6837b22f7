"""Translates gin files of Mesh TensorFlow and T5 to gin files of meshtf."""
