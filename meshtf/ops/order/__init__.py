"""Operations on the order of elements: the largest one, the k largest, sorting."""
