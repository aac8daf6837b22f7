"""The same elements under other dimensions, put together, taken apart, or in another layout."""
