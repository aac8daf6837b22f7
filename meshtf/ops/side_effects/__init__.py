"""Operations with side effects: checks, printing, summaries, exports, and the order in which they happen."""
