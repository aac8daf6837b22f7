"""The state of lowering: tensors that are held, their readers, variables, checks and the loops around."""
