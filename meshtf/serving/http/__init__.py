"""The HTTP server: OpenAI-style endpoints before an engine."""
