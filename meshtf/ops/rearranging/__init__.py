"""The same elements under other dimensions, put together, taken apart, or laid out otherwise."""
