"""Integrations in other programs, each with an extra of its own; they use public names only."""
