"""Work over a complete stored database.

check compares everything that is stored; repair and merge write new databases, and so does compact;
portable reads and writes the form for other machines; stats counts.
"""
