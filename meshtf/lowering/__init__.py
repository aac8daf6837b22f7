"""From a graph and a layout to a plan, and from a plan to one per-core TensorFlow program."""
