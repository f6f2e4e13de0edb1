"""Stacks compared on the same requests: what ``specdec compare`` does."""
