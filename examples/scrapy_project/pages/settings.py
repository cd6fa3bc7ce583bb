"""The settings: two lines make a crawl find near-duplicates."""

BOT_NAME = "pages"
SPIDER_MODULES = ["pages.spiders"]
ROBOTSTXT_OBEY = True
TELNETCONSOLE_ENABLED = False

ITEM_PIPELINES = {"fpdb.integrations.scrapy.NearDuplicatesPipeline": 300}
FPDB_DATABASE = "crawl.fpdb"
