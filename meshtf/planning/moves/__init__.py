"""From one layout to another: routes, padded slices, and what a core needs of its neighbours."""
