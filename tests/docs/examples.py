"""Run the code blocks of a Markdown page and compare what they print with what the page says.

python    run in order, in one namespace per page
pycon     run as doctests in the same namespace
console   each `$ ` line is run by bash; `> ` lines continue it; the lines below are its output.
          The exit code must be 0, or the N of a comment `# exit N` on the command or right below
          it. Without output lines the output is not compared.

`...` stands for any output. A comment `<!-- not run: reason -->` above a block skips it.
"""

import doctest
import os
import re
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

RUN = {"python", "pycon", "console"}
# A block of any other language is a mistake.
SHOWN = {"go", "json", "text", "toml", "{eval-rst}", "{toctree}"}
OPENING = re.compile(r"(?P<indent>\s*)(?P<ticks>`{3,}|~{3,})\s*(?P<language>\{?[\w-]*\}?)")
NOT_RUN = re.compile(r"\s*<!--\s*not run\b:?\s*(?P<reason>.*?)\s*-->\s*")
EXIT = re.compile(r"#\s*exit (\d+)\s*$", re.MULTILINE)
SECONDS = 300


class ExampleError(AssertionError):
    """A block that doesn't do what its page says."""

    def __init__(self, place: str, command: str, expected: str, got: str) -> None:
        parts = {"in": place, "ran": command, "expected": expected, "got": got}
        report = [
            f"{name}:\n{textwrap.indent(part.strip(), '    ')}" for name, part in parts.items()
        ]
        super().__init__("\n".join(["", *report]))


@dataclass
class Block:
    """One fenced block: its language, its text, and the line its text starts on."""

    language: str
    text: str
    line: int


@dataclass
class Page:
    """A Markdown file, and the folder and namespace that its blocks share.

    `commands` is a directory for the beginning of PATH: the one of the `fpdb` to run. What is
    `replaced` is run otherwise than the file has it.
    """

    path: Path
    folder: Path
    commands: Path = Path(sys.executable).parent
    replaced: dict[str, str] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self) -> None:
        """Run every block in order; raise ExampleError at the first that fails."""
        text = self.path.read_text(encoding="utf-8")
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        for block in blocks(text, self.path.name):
            getattr(self, f"run_{block.language}")(block)

    def place(self, line: int) -> str:
        return f"{self.path}:{line}"

    def run_python(self, block: Block) -> None:
        # The empty lines above make line numbers in a traceback those of the page.
        source = "\n" * (block.line - 1) + block.text
        try:
            exec(compile(source, str(self.path), "exec"), self.names)
        except Exception as error:
            place = self.place(line_of(error, str(self.path)) or block.line)
            got = traceback.format_exc()
            raise ExampleError(place, block.text, "no exception", got) from error

    def run_pycon(self, block: Block) -> None:
        name = f"{self.path.name}:{block.line}"
        test = doctest.DocTestParser().get_doctest(
            block.text, self.names, name, str(self.path), block.line - 1
        )
        if not test.examples:
            raise ExampleError(self.place(block.line), block.text, "a line with >>>", "none")
        test.globs = self.names  # get_doctest took a copy
        runner = doctest.DebugRunner(optionflags=doctest.ELLIPSIS)
        try:
            runner.run(test, out=lambda text: None, clear_globs=False)
        except doctest.DocTestFailure as failure:
            example, expected, got = failure.example, failure.example.want, failure.got
        except doctest.UnexpectedException as failure:
            example, expected = failure.example, failure.example.want or "no exception"
            got = "".join(traceback.format_exception(*failure.exc_info))
        else:
            return
        raise ExampleError(self.place(block.line + example.lineno), example.source, expected, got)

    def run_console(self, block: Block) -> None:
        for line, command, code, expected in commands(block):
            try:
                done = subprocess.run(
                    ["bash", "-o", "pipefail", "-c", command],
                    check=False,
                    cwd=self.folder,
                    env=environ(self.commands),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    encoding="utf-8",
                    errors="backslashreplace",
                    timeout=SECONDS,
                )
            except subprocess.TimeoutExpired as error:
                raise ExampleError(
                    self.place(line), command, f"an end within {SECONDS} s", "none"
                ) from error
            if done.returncode != code:
                got = f"exit code {done.returncode}\n{done.stdout}"
                raise ExampleError(self.place(line), command, f"exit code {code}", got)
            same = doctest.OutputChecker().check_output
            if expected and not same(expected, done.stdout, doctest.ELLIPSIS):
                raise ExampleError(self.place(line), command, expected, done.stdout)


def blocks(markdown: str, name: str) -> Iterator[Block]:
    """Yield the blocks to run; refuse one that nobody would notice not being run."""
    lines = markdown.splitlines()
    before = ""  # the last line above that is not empty
    position = 0
    while position < len(lines):
        opening = OPENING.match(lines[position])
        if not opening:
            before = lines[position].strip() or before
            position += 1
            continue
        start = position + 1
        language = opening["language"]
        closing = re.compile(rf"\s*{opening['ticks']}{opening['ticks'][0]}*\s*")
        end = next((n for n in range(start, len(lines)) if closing.fullmatch(lines[n])), None)
        if end is None:
            raise ExampleError(f"{name}:{position + 1}", lines[position], "a closing fence", "none")
        skipped = NOT_RUN.fullmatch(before)
        if skipped and not skipped["reason"]:
            raise ExampleError(f"{name}:{position + 1}", before, "a reason", "none")
        if language not in RUN | SHOWN:
            known = ", ".join(sorted(RUN | SHOWN))
            place = f"{name}:{position + 1}"
            raise ExampleError(place, lines[position], f"one of {known}", language)
        if language in RUN and not skipped:
            width = len(opening["indent"])
            text = "".join(line[min(width, indent(line)) :] + "\n" for line in lines[start:end])
            yield Block(language, text, start + 1)
        before = ""
        position = end + 1


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def commands(block: Block) -> Iterator[tuple[int, str, int, str]]:
    """Yield each command of a console block: its line, text, exit code and expected output."""
    lines = block.text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("$ ")]
    if not starts or starts[0] != 0:
        raise ExampleError(f"line {block.line}", block.text, "a first line with $", "none")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        middle = start + 1
        while middle < end and (lines[middle] == ">" or lines[middle].startswith("> ")):
            middle += 1
        command = "\n".join(line[2:] for line in lines[start:middle]) + "\n"
        output = lines[middle:end]
        code = EXIT.search(command)
        if output and EXIT.match(output[0]):
            code = EXIT.match(output.pop(0))
        expected = "\n".join(output).strip("\n")
        yield (
            block.line + start,
            command,
            int(code[1]) if code else 0,
            expected + "\n" if expected else "",
        )


def environ(commands: Path) -> dict[str, str]:
    """Return the variables for bash: `fpdb` is the one under test, and its output is plain."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FPDB_")}
    python = str(Path(sys.executable).parent)
    path = os.pathsep.join([str(commands), python, os.environ.get("PATH", os.defpath)])
    plain = {"COLUMNS": "88", "NO_COLOR": "1", "PYTHONUTF8": "1", "TERM": "dumb"}
    return {**kept, **plain, "PATH": path}


def line_of(error: BaseException, path: str) -> int | None:
    """Return the page's line that an exception came through, if any."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
