"""The command-line programs. They have absl flags, and gin configures them."""
