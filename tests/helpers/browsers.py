"""A real browser: tests with the mark `browser` run where Chromium and its driver are."""

import contextlib
import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def installed():
    """Return the paths of a browser and its driver, or None if a part is missing."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser and driver:
        return browser, driver
    return None


def pytest_collection_modifyitems(config, items):
    """Deselect the tests of the browser where there is none, and say how many."""
    if installed():
        return
    left_out = [item for item in items if item.get_closest_marker("browser")]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@contextlib.contextmanager
def started(folder):
    """Start a browser without a window, which saves into a folder."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser, driver = installed()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    # Without a sandbox, because it needs rights that containers don't give.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield window
    finally:
        window.quit()


class Reader:
    """Sees a page in a browser, and does what a reader does."""

    def __init__(self, window):
        self.window = window

    def all(self, selector):
        return self.window.find_elements("css selector", selector)

    def one(self, selector):
        [found] = self.all(selector)
        return found

    def texts(self, selector):
        return [element.text for element in self.all(selector)]

    def button(self, text):
        [found] = [button for button in self.all("button") if button.text == text]
        return found

    def resize(self, width, *, dark=False):
        self.window.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


# Open every fold and press every button that sends no form, as if there were a printer; return what
# then looks like no text for people.
PRESS_ALL = r"""
window.print = () => {};
for (const each of document.querySelectorAll("details")) each.open = true;
for (const each of document.querySelectorAll(".head[aria-expanded=false]")) each.click();
for (const each of document.querySelectorAll("main button[type=button]"))
  if (!each.matches(".head, [hidden] *, #every")) each.click();
const every = document.querySelector("#every");
if (every) { every.click(); every.click(); }
return document.documentElement.outerHTML.replace(/<script[^]*?<\/script>/g, "")
  .match(/\[object|undefined|NaN|null/g) || [];
"""

# Words that aren't a document's own, and are in English still; names of programs, files and fields
# may be.
ENGLISH = r"""
const names = ["placeholder", "aria-label", "title"];
const files = /\S*\.(html|jsonl|test|csv|fpdb|example)\S*|\w+ \(\w{8,}\)/g;
const named = /--[a-z]+( web-zh)?|fpdb( eval)?|CSV|HTML|UTC|MB|F1|\bk\b|^web(?=：|$)|字段“\w+”/g;
const theirs = "[dir=auto], bdi, head, script, style, template, noscript, code, textarea, "
  + "#language";
const found = [], walker = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
while (walker.nextNode())
  if (!walker.currentNode.parentElement.closest(theirs)) found.push(walker.currentNode.data);
for (const node of document.querySelectorAll("*"))
  for (const name of names) found.push(node.getAttribute(name) || "");
const english = (text) => /[a-z]{2}/i.test(text.replace(files, "").replace(named, ""));
return [...new Set(found)].filter(english);
"""
