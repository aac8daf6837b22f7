"""What makes virtual CPUs fast: a wing beside the plain emission, which does the same without it."""
