from fractions import Fraction

import pytest

from common.kinds.accuracy.numbers import find_numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", []),
        ("no digits here", []),
        ("1,234.50 and 1,2345", ["1234.5", "1", "2345"]),
        ("3,4 or 3, 4", ["3", "4", "3", "4"]),
        ("9-4, 9 -4, (-4), = -4, 9 - 4", ["9", "4", "9", "-4", "-4", "-4", "9", "4"]),
        ("5/0", ["5", "0"]),
        ("12 8/4", ["12", "2"]),
        ("1 1/2", ["3/2"]),
        ("2\u00bd and \u2153", ["5/2", "1/3"]),
        ("1.5/2", ["3/4"]),
        ("1,00,000 and 12,50,000.5", ["100000", "2500001/2"]),
        ("1,20, 1,2,300, 1,00,0000", ["1", "20", "1", "2300", "1", "0", "0"]),
        ("1'234, 5' 11, 3'4, it's 1\u2019000", ["1234", "5", "11", "3", "4", "1000"]),
        ("R150, R2, P1, P1 has KES 5, Ksh7", ["150", "5", "7"]),
        ("is18, Are 3 about4; this5, CO2, Step2", ["18", "3", "4"]),
        ("x2, x_2, m^2, m^{12}, s^-1, 10**6", ["10"]),
        ("2x3", ["2", "3"]),
        ("1e3, 1.5E-1, 2em", ["1000", "3/20", "2"]),
        ("1e999999999 stays small", ["1", "999999999"]),
    ],
)
def test_numbers(text: str, numbers: list[str]) -> None:
    assert find_numbers(text) == [Fraction(number) for number in numbers]


@pytest.mark.parametrize(
    "looped", ["1", "1,", "1,111,", "1 1/", "^", "-", "1.", "\\frac{1}{", "$-"]
)
def test_a_reply_caught_in_a_loop_is_read(looped: str) -> None:
    assert find_numbers(looped * 50_000 + " so 42")[-1] == 42
