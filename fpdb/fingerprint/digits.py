"""Fingerprints as digits: hexadecimal, decimal, signed, or a string of 0 and 1."""

import re
from dataclasses import dataclass
from typing import Literal

from fpdb.errors import InputError
from fpdb.models import require_choice

Base = Literal["hex", "decimal", "signed", "binary"]
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,64}")
_HINT = "fingerprints of another width need a database of their own"


@dataclass(frozen=True)
class Notation:
    """One way to write fingerprints; digits after 0x are hexadecimal in each of them."""

    radix: int
    digits: str
    expected: str
    negative: bool = False

    def parse(self, digits: str) -> int | None:
        """Return the number that digits are, which may be negative; None if they are none."""
        if re.fullmatch(self.digits, digits):  # which keeps the compiled pattern
            return int(digits, self.radix)
        return int(digits, 16) if _HEX.fullmatch(digits) else None


NOTATIONS = {
    "hex": Notation(16, "[0-9a-fA-F]{1,64}", "up to 64 hex digits, with or without 0x"),
    "decimal": Notation(
        10,
        "[0-9]{1,64}",
        "up to 64 decimal digits, or 0x and hex digits (a negative number has the base signed)",
    ),
    "signed": Notation(
        10, "-?[0-9]{1,64}", "up to 64 decimal digits, with or without a minus sign", negative=True
    ),
    "binary": Notation(2, "[01]{1,128}", "up to 128 digits 0 and 1, the highest first"),
}


def parse_fingerprint(digits: str, bits: int = 64, base: Base = "hex") -> int:
    """Return the fingerprint that digits are, as one of `bits` bits.

    `base` is "hex", "decimal", "signed" or "binary". Signed is decimal with negative numbers, as
    Java and SQL write a fingerprint whose highest bit is 1; binary is a string of 0 and 1, the
    highest bit first.
    """
    require_choice("base", base, NOTATIONS)
    number = NOTATIONS[base].parse(digits)
    if number is None:
        raise InputError(
            f"found {digits!r:.80}, expected a fingerprint: {NOTATIONS[base].expected}",
            hint=f"the base is one of {', '.join(NOTATIONS)}",
        )
    return unsigned(number, bits)


def format_fingerprint(fingerprint: int, bits: int = 64, base: Base = "hex") -> str:
    """Return the digits of a fingerprint, as `parse_fingerprint` takes them."""
    require_choice("base", base, NOTATIONS)
    number = unsigned(fingerprint, bits)
    if base == "hex":
        return f"{number:0{bits // 4}x}"
    if base == "binary":
        return f"{number:0{bits}b}"
    return str(number - (number >> bits - 1 << bits) if base == "signed" else number)


def unsigned(number: int, bits: int) -> int:
    """Return a fingerprint as a number from 0; a negative one is the two's complement.

    Raises:
        InputError: The number doesn't fit into this width.
    """
    if 0 <= number < 1 << bits:
        return number
    if -(1 << bits - 1) <= number < 0:
        return number + (1 << bits)
    raise InputError(f"found the fingerprint {number:#x}, expected {bits} bits", hint=_HINT)
