"""The error of a user: its words, its fix apart, and what was perhaps meant."""

import pickle

from common.errors import RigError, StartError, did_you_mean

KNOWN = ("PORT", "CTX_SIZE", "SPEC_TYPE")


def test_a_fix_ends_the_message_and_can_be_shown_apart() -> None:
    error = RigError("a.env: no; such key", fix="remove it; or mend it")
    assert str(error) == "a.env: no; such key; remove it; or mend it"
    assert (error.what, error.fix) == ("a.env: no; such key", "remove it; or mend it")
    assert str(RigError("a; b")) == "a; b"
    assert (RigError("a; b").what, RigError("a; b").fix) == ("a; b", "")


def test_it_comes_whole_out_of_another_process() -> None:
    error = pickle.loads(pickle.dumps(StartError("a", fix="b")))  # noqa: S301 (our own)
    assert (str(error), error.what, error.fix) == ("a; b", "a", "b")


def test_did_you_mean() -> None:
    assert did_you_mean("PROT", KNOWN) == "did you mean PORT?"
    assert did_you_mean("ctxsize", KNOWN) == "did you mean CTX_SIZE?"
    assert did_you_mean("something else", KNOWN) == ""
    cards = {"3050": "RTX 3050", "3050oem": "RTX 3050 OEM"}
    asked = did_you_mean("3050o", cards, cards.__getitem__, most=2)
    assert asked == "did you mean RTX 3050 or RTX 3050 OEM?"
