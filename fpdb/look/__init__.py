"""Pages to look at: reports of a corpus and of an evaluation, and an explorer of a database."""
