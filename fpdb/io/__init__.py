"""Readers and writers: files and streams as records and texts. Nothing here uses fingerprints."""
