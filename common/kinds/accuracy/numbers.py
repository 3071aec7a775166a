"""Numbers as people write them in prose, read exactly."""

import re
import unicodedata
from fractions import Fraction

_CURRENCY = r"[$\u00a2\u00a3\u00a5\u20a0-\u20cf]"
_CODES = "USD|EUR|GBP|INR|CAD|AUD|NZD|SGD|CHF|ZAR|KES|K[Ss]h|P[Hh][Pp]|Rs|Rp"
# Rewrites that leave only plain digits, in this order. What is dropped is not an amount: an
# exponent (m^2), and digits that belong to a name (x2, x_2).
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[\u2010-\u2015\u2212\ufe63\uff0d]", "-"),  # hyphens, dashes, the minus sign
        (r"\u2044", "/"),  # fraction slash
        (r"\\[dt]?frac\s*\{\s*(-?[0-9.,]+)\s*\}\s*\{\s*([0-9.,]+)\s*\}", r" \1/\2"),
        (
            r"(?<=[0-9])(?:\{,\}|\\[,;: !]|['\u2019\u00a0]|,?[\u2009\u202f])(?=[0-9]{3}(?![0-9]))",
            ",",
        ),
        (r"(?<=[0-9])\*\*(?=[0-9])", "^"),  # a power in code
        (r"\*\*", ""),  # bold
        (rf"\b(?:{_CODES})\.?(?=\s*-?[0-9])", ""),
        (r"\b[RP](?=[0-9]{2})", ""),  # rand, pesos; R2 and P1 are names
        (r"(?i)\b(is|are|was|equals|about|approximately|around|roughly)(?=[0-9])", r"\1 "),
        (rf"\b[A-Z]{{1,3}}{_CURRENCY}", "$"),  # US$, A$
        (rf"(?<=[a-z])\\?{_CURRENCY}", " "),  # "is$5": keep the word off the digits
        (rf"\\?{_CURRENCY}\s?(?=-?[0-9.])|\\?{_CURRENCY}", ""),
        (r"\\[A-Za-z]+", " "),  # other LaTeX commands
        (r"\^\s*\{?\s*-?[0-9.]*[0-9]", " "),
        (r"(?<![0-9])[A-Za-z]_?\{?[0-9]+", " "),
    )
)
# A model caught in a loop can write digits without end; no answer is this long, and Python refuses
# to read more than 4,300 digits.
_LONGEST = 1000
_VULGAR = re.compile(r"([0-9]?)([\u00bc-\u00be\u2150-\u215e])")

_PLAIN = (
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3})(?![0-9])(?:\.[0-9]+)?"
    r"|[0-9]+(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)"
)
# A minus is a sign only where nothing stands before it that could be subtracted from: "9-4" holds
# 9 and 4, "(-4)" and "= -4" hold -4.
_NUMBER = re.compile(
    rf"(?P<sign>(?<![A-Za-z0-9)\]%}}])-)?"
    rf"(?:(?P<whole>[0-9]+)[ ](?P<above>[0-9]+)/(?P<below>[0-9]*[1-9][0-9]*)(?![0-9./])"
    rf"|(?P<plain>{_PLAIN})(?P<exponent>[eE][+-]?[0-9]{{1,2}}(?![0-9A-Za-z]))?"
    rf"(?:[ ]?/[ ]?(?P<divisor>{_PLAIN}))?)"
)


def find_numbers(text: str) -> list[Fraction]:
    """Every number in `text`, in reading order, as exact fractions.

    Read as one number: thousands marks (1,234.50, 1'234, in India 1,00,000), a leading or trailing
    dot (.5, 42.), a sign (-3, $-3, -$3, the Unicode minus), a quotient of two numbers (3/4, 1.5/2),
    a mixed number (1 1/2), a vulgar fraction sign, LaTeX (\\frac{3}{4}, \\boxed{42}, 1{,}234) and a
    power of ten (1e3). Currency, percent and unit signs are ignored, so 42% is 42. A quotient by
    zero is two numbers. A run of digits longer than any answer is none.
    """
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _VULGAR.sub(_spell_vulgar, text)
    numbers: list[Fraction] = []
    for match in _NUMBER.finditer(text):
        numbers.extend(_values(match))
    return numbers


def _spell_vulgar(match: re.Match[str]) -> str:
    """A vulgar fraction sign written out: a half after the digit 2 becomes "2 1/2"."""
    value = Fraction(unicodedata.numeric(match[2])).limit_denominator(10)
    gap = " " if match[1] else ""
    return f"{match[1]}{gap}{value.numerator}/{value.denominator}"


def _values(match: re.Match[str]) -> list[Fraction]:
    if len(match[0]) > _LONGEST:
        return []
    sign = -1 if match["sign"] else 1
    if match["whole"] is not None:
        whole = Fraction(match["whole"])
        part = Fraction(int(match["above"]), int(match["below"]))
        # "12 3/4" is a mixed number; "12 8/4" is two numbers side by side.
        return [sign * (whole + part)] if part < 1 else [sign * whole, part]
    value = Fraction(match["plain"].replace(",", "") + (match["exponent"] or "")) * sign
    if match["divisor"] is None:
        return [value]
    divisor = Fraction(match["divisor"].replace(",", ""))
    return [value / divisor] if divisor else [value, divisor]
