"""Sources of images: arrays, folders, TFRecord files."""
