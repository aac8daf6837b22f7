"""Operations with effects besides their results: checks, printing, summaries, exports, and an order among them."""
