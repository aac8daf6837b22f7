"""The commands of meshtf-checkpoint, and the texts that it prints."""
