"""All near-duplicates: pairs and clusters of databases, exact joins, and evaluation of recipes."""
