"""Operations on matrices over two named dimensions: Cholesky and QR decompositions, triangular systems."""
