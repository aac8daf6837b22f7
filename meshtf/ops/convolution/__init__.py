"""Convolutions and pooling over named dimensions, under any layout."""
