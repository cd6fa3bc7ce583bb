"""The settings: four lines make a crawl find near-duplicates."""

BOT_NAME = "pages"
SPIDER_MODULES = ["pages.spiders"]
ROBOTSTXT_OBEY = True
TELNETCONSOLE_ENABLED = False

ITEM_PIPELINES = {"fpdb.integrations.scrapy.NearDuplicatesPipeline": 300}
FPDB_DATABASE = "crawl.fpdb"
FPDB_FIELD = "html"
FPDB_MARKUP = "html"  # compare the main text of pages, without templates and scripts
