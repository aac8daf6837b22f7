"""Converts weights of other libraries. Rules map their tensors to meshtf's, for import and for export."""
