"""Many elements to one, or to as many: extrema, products, running sums, softmax."""
