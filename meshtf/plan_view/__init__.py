"""Shows plans: in the terminal, in a table of several layouts, as JSON, and as a page, written or served."""
