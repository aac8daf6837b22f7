"""What meshtf adds to gin: where each binding was written, which are never read, and errors that say so."""
