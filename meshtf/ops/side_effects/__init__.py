"""Operations for what they do besides computing."""
