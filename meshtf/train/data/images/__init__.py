"""Images: their sources, crops and augmentations, and the task that makes batches of them."""
