"""Work over a complete stored database."""
