"""Programs compiled by the TPU's own compiler, for topologies that are not there."""
