"""What is known while operations are lowered: tensors that are held, their readers, variables, checks, loops around."""
