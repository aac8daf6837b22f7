"""meshtf's additions to gin: where each binding was written, which are never read, and messages that say so."""
