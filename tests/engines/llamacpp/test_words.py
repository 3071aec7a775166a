"""What serve.py says of keys and command lines."""

import pytest

from common.engines.llamacpp import serve
from common.rig import Rig


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("Q7zx", "Q7zx,Q7zx"),
        ("Q7zx\n", "Q7zx,Q7zx"),
        ("\nfirst\r\nsecond\n", "first,first"),
        ("a,b", "a,b"),
        (",a,,b,", "a,b"),
    ],
)
def test_the_server_gets_no_key_alone(given: str, wanted: str) -> None:
    """Of one key it writes the end into its log, of several only their number."""
    environment = {"LLAMA_API_KEY": given, "PATH": "/bin"}
    assert serve.own_keys(environment) == {"LLAMA_API_KEY": wanted, "PATH": "/bin"}


@pytest.mark.parametrize("given", ["", "\n", ","])
def test_no_key_stays_none(given: str) -> None:
    assert serve.own_keys({"LLAMA_API_KEY": given}) == {}
    assert serve.own_keys({}) == {}


def test_our_server_is_told_by_its_command_line(tiny: Rig) -> None:
    line = serve.command(tiny, "/x/llama-server")
    assert serve.is_server(line, tiny.url)
    assert serve.is_server(["/bin/sh", "/x/wrapper", *line[1:]], tiny.url)
    assert not serve.is_server(line, "http://127.0.0.1:1")
    assert not serve.is_server(["sleep", "600"], tiny.url)
    assert not serve.is_server(["ssh", "-p", str(tiny.port), "--port", str(tiny.port)], tiny.url)
    assert not serve.is_server([], tiny.url)
