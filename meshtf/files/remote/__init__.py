"""Files and folders of object stores, through fsspec."""
