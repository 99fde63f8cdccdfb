"""The server: OpenAI's interface to an engine, metrics, and a page to chat on."""
