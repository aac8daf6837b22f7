"""Operations that need a neighbour's elements: shifts and halos."""
