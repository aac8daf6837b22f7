"""Crops and random changes of images."""
