"""Documents over the tables: found by key and id, looked up by nearness, written together.

`catalog` has what is stored of each document, for both kinds of keys, and `layout` what a header
names of all that. `prepare` checks and fingerprints what is to be added, `writer` collects the
changes of one transaction, `lookup` turns near fingerprints into matches, and `similarity` verifies
them.
"""
