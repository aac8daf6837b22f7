"""Parts that several programs share: how they run, their flags, their mesh."""
