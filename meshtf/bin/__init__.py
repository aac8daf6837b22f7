"""Programs: absl flags, configured by gin."""
