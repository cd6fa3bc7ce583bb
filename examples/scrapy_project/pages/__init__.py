"""A Scrapy project that tags near-duplicates."""
