"""The parts of command lines that several programs share."""
