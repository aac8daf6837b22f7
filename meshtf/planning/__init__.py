"""Planning: everything that an operation needs to lower itself to a plan. No TensorFlow op is made here."""
