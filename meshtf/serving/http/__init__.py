"""The HTTP server: OpenAI-style endpoints in front of an engine."""
