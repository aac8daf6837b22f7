"""What needs a neighbour's elements: shifts and halos."""
