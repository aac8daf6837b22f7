"""Operations that order elements: the largest one, the k largest, sorting."""
