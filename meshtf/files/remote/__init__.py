"""Files and folders that are no files of this machine: object stores, through fsspec."""
