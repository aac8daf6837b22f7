"""Operations that reshape, join or split tensors, or change their layout."""
