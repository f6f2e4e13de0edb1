"""A sound plugin that is loaded after all others; it brings nothing."""
