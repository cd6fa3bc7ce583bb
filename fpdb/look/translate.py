"""Lines of the terminal in the language of their reader, by the messages of the pages.

As in translate.js, messages are found by their English text, in which {n} and {m} are numbers, what
begins with {name} stays as it is, and others are messages, too.
"""

import re
from collections.abc import Mapping
from functools import cached_property

from fpdb.look.page import lines

_FIELD = re.compile(r"\\\{(\w+)\\\}")
# What parts a line: sentences, a line and its counts, and lists.
_BETWEEN = {". ": "。", "; ": "；", ": ": "：", ", ": "，"}


class Translator:
    """Says lines in a language, as far as it has messages for them or for their parts."""

    def __init__(self, language: str) -> None:
        self._messages: Mapping[str, str] = lines(language)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        return [
            (_pattern(text), message)
            for text, message in self._messages.items()
            if "{" in text or "(s)" in text
        ]

    def say(self, line: str) -> str:
        """Return a line, or those parts of it that are known, in the language."""
        if (known := self._known(line)) is not None:
            return known
        for between, joined in _BETWEEN.items():
            # What comes before a colon may be a name, and what comes after it a message with one.
            parts = line.split(between, 1 if between == ": " else -1)
            said = [self.say(part) for part in parts] if len(parts) > 1 else parts
            if said != parts:
                return joined.join(said)
        return line

    def _known(self, line: str) -> str | None:
        bare = line.removesuffix(".")
        for text, end in ((line, ""), (bare, "。")):
            if text in self._messages:
                return self._messages[text] + end * (text != line)
        for pattern, message in self._patterns:
            if match := pattern.fullmatch(line):
                fields = {
                    name: text if name.startswith("name") or name in "nm" else self.say(text)
                    for name, text in match.groupdict().items()
                }
                return message.format_map(fields)
        return None


def _pattern(text: str) -> re.Pattern[str]:
    escaped = re.escape(text).replace(r"\(s\)", "s?")
    numbers = r"<?[≈\d.,\u00a0%–-]+"
    return re.compile(
        _FIELD.sub(
            lambda match: f"(?P<{match[1]}>{numbers if match[1] in 'nm' else '.+?'})", escaped
        ),
        re.DOTALL,
    )
