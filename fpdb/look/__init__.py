"""Pages to look at: reports of a corpus, and an explorer of a database."""
