"""From sizes and layouts to a plan: all that an operation needs to lower itself. No TensorFlow op is made here."""
