"""Errors of Spark as errors of fpdb: what went wrong, in a few lines, and what cures it."""

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

import fpdb

_SHOWN = 400
# What wraps a message: classes of Java, the task that failed, and marks for machines.
_WRAPPING = re.compile(
    r"Job aborted due to stage failure: .*?\(executor [^)]*\): |Job aborted due to stage failure: "
    r"|Task \d+ in stage [\d.]+ failed \d+ times, most recent failure: Lost task [^:]*: "
    r"|(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error): |\[[A-Z][A-Z_.0-9]+\] | *SQLSTATE: \w+\s*$"
)
_HINTS = {
    "PATH_NOT_FOUND": "paths are Spark's: on a cluster, all workers must reach them",
    "PATH_ALREADY_EXISTS": "choose another directory, or remove it",
    "UNABLE_TO_INFER_SCHEMA": "is there anything in it? --format says what it is",
    "CANNOT_READ_FILE_FOOTER": "--format says what it is, if it isn't Parquet",
    "OutOfMemoryError": "give it more --memory, or more executors",
    "GC overhead": "give it more --memory, or more executors",
    "S3AFileSystem not found": "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, "
    "with the version of Spark's Hadoop",
    "No FileSystem for scheme": "s3a://, hdfs:// and file:// are usual; others need their jar",
}


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what Spark raises in a block into an error of fpdb."""
    try:
        yield
    except AnalysisException as error:
        raise fpdb.InputError(told(str(error)), hint=_hint(_text(error))) from None
    except (PySparkException, Py4JError, ConnectionError) as error:
        text = _text(error)
        raise fpdb.WorkerError(f"Spark failed: {told(text)}", hint=_hint(text)) from None


def _text(error: Exception) -> str:
    condition = error.getCondition() if isinstance(error, PySparkException) else ""
    text = str(error)
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        text = "its Java process doesn't answer any more"
    return f"[{condition}] {text}" if condition else text


def _hint(text: str) -> str:
    for mark, hint in _HINTS.items():
        if mark in text:
            return hint
    return "--conf spark.log.level=INFO shows what Spark does"


def told(text: str) -> str:
    """Find the message in what Spark says of an error: the first that isn't a mere wrapper."""
    if "Traceback (most recent call last)" in text:
        return _of_python(text)
    lines = text.splitlines()
    heads = [line for line in lines if line.startswith((": ", "Caused by: "))] or lines[:1]
    for head in heads:
        message = head.removeprefix(": ").removeprefix("Caused by: ")
        while message != (message := _WRAPPING.sub("", message).strip()):
            pass
        if message and not message.startswith("Exception thrown in awaitResult"):
            return message[:_SHOWN]
    return heads[0][:_SHOWN] if heads else "no reason is given"


def _of_python(text: str) -> str:
    """Take the last error of a traceback, which is below its last indented line."""
    lines = text[text.rindex("Traceback (most recent call last)") :].splitlines()[1:]
    for place, line in enumerate(lines):
        if line and not line.startswith(" "):
            message = _WRAPPING.sub("", "\n".join(lines[place : place + 3]).split("\n\tat ")[0])
            return message.strip()[:_SHOWN]
    return "no reason is given"
