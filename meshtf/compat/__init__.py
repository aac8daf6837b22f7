"""The names of other libraries, so that existing programs run on meshtf."""
