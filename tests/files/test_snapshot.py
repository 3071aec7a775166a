"""Bringing a checkpoint: which files, going on after a break, what is refused."""

import json
import time

import pytest

from common import places
from common.errors import RigError
from common.files import snapshot
from common.files.hub import PIECE, TRIES
from common.rig import Rig
from tests.files.fetching import digest_of, script, until
from tests.helpers import fake_hub as fake
from tests.helpers.fake_hub import Answer, FakeHub, Handler

WEIGHTS = "model.safetensors"


@pytest.fixture
def own(tiny: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("REPACK_HF", "them/it")
    return tiny.variant({"REPACK_HF": "them/it"})


def listing(
    hub: FakeHub,
    *names: str,
    size: int | None = None,
    sha256: str = "",
    commit: object = fake.COMMIT,
) -> Answer:
    """What the hub says of the repository: files that are all the same."""
    length = len(hub.content) if size is None else size
    about = {"oid": sha256 or digest_of(hub.content), "size": length, "pointerSize": 9}
    files = [
        {"rfilename": name, "size": length, "blobId": "b"}
        | ({"lfs": {**about, "sha256": about["oid"]}} if name == WEIGHTS else {})
        for name in names
    ]
    body = json.dumps({"id": "them/it", "sha": commit, "siblings": files}).encode()

    def answer(to: Handler) -> None:
        to.head(200, {"Content-Type": "application/json", "Content-Length": len(body)})
        to.wfile.write(body)

    return answer


def fetch(rig: Rig) -> tuple[snapshot.Snapshot, list[str]]:
    said: list[str] = []
    return snapshot.fetch(rig, said.append, lambda *_: None), said


def test_only_what_a_checkpoint_is_made_of(
    own: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    fake_hub.gets = [listing(fake_hub, "config.json", WEIGHTS, "picture.png")]
    found, said = fetch(own)
    assert (found.repository, found.revision) == ("them/it", fake.COMMIT)
    names = sorted(path.name for path in found.folder.iterdir())
    assert names == [".lock", "config.json", WEIGHTS]
    assert (found.folder / WEIGHTS).read_bytes() == fake_hub.content
    asked = [path for _method, path, _headers in fake_hub.seen]
    assert asked[1:] == [f"/them/it/resolve/{fake.COMMIT}/{name}" for name in names[1:]]
    assert all(headers["authorization"] == "Bearer secret" for *_, headers in fake_hub.seen)
    assert "secret" not in "".join(said)
    fake_hub.gets = [listing(fake_hub, "config.json", WEIGHTS)]
    fetch(own)
    assert len(fake_hub.seen) == len(asked) + 1  # what is here is not asked for again


def test_a_broken_download_goes_on_where_it_stopped(
    own: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    listed = listing(fake_hub, WEIGHTS)
    fake_hub.gets = [listed, fake.cut(PIECE), *[fake.status(503)] * TRIES]
    with pytest.raises(RigError, match="it goes on from what has come"):
        fetch(own)
    before = len(fake_hub.ranges())
    fake_hub.gets = [listed]
    found, _said = fetch(own)
    assert fake_hub.ranges()[before:] == [None, f"bytes={PIECE}-"]
    assert (found.folder / WEIGHTS).read_bytes() == fake_hub.content


def test_a_killed_download_goes_on_where_it_stopped(own: Rig, fake_hub: FakeHub) -> None:
    listed = listing(fake_hub, WEIGHTS)
    fake_hub.gets = [listed, fake.held(2 * PIECE)]
    with script("repack", own) as killed:
        folder = places.cache() / "snapshots"
        until(lambda: sum(p.stat().st_size for p in folder.glob("**/*.part")) == 2 * PIECE)
        killed.kill()
    fake_hub.go_on.set()
    fake_hub.gets = [listed]
    found, _said = fetch(own)
    assert fake_hub.ranges()[-1] == f"bytes={2 * PIECE}-"
    assert (found.folder / WEIGHTS).read_bytes() == fake_hub.content


def test_other_bytes_than_declared_are_not_used(own: Rig, fake_hub: FakeHub) -> None:
    fake_hub.gets = [listing(fake_hub, WEIGHTS, sha256="0" * 64)]
    with pytest.raises(RigError, match="it was not used"):
        fetch(own)
    left = places.cache() / "snapshots" / "them--it" / fake.COMMIT
    assert [path.name for path in left.iterdir()] == [".lock"]


def test_refusals(tiny: Rig, own: Rig, fake_hub: FakeHub) -> None:
    with pytest.raises(RigError, match="set REPACK_HF"):
        fetch(tiny)
    fake_hub.gets = [fake.status(404, X_Error_Code="RepoNotFound")]
    with pytest.raises(RigError, match=r"the server answered 404\. Check the network"):
        fetch(own)
    fake_hub.gets = [listing(fake_hub, WEIGHTS, size=10**15)]
    with pytest.raises(RigError, match="set GEMMA_RIGS_CACHE"):
        fetch(own)


OUTSIDE = [
    "../up.json",
    "/srv/x.json",
    "a/../../b.json",
    ".hidden.json",
    "a\n.json",
    "x" * 300 + ".json",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_out_of_the_folder_is_refused(
    name: str, own: Rig, fake_hub: FakeHub
) -> None:
    fake_hub.gets = [listing(fake_hub, WEIGHTS, name)]
    with pytest.raises(RigError, match="is no file of a checkpoint; check HF_ENDPOINT") as caught:
        fetch(own)
    assert "\n" not in str(caught.value)
    assert not list(places.cache().glob("**/*.json"))


@pytest.mark.parametrize("commit", ["main", "../../x", None, 7, f"{fake.COMMIT}\n"])
def test_a_commit_that_is_none_is_no_folder(commit: object, own: Rig, fake_hub: FakeHub) -> None:
    fake_hub.gets = [listing(fake_hub, WEIGHTS, commit=commit)]
    with pytest.raises(RigError, match="the hub names no commit"):
        fetch(own)
    assert not (places.cache() / "snapshots").exists()


@pytest.mark.parametrize("body", [b"null", b"[]", b'{"siblings": 3}', b'{"siblings": [null]}'])
def test_a_listing_that_makes_no_sense(body: bytes, own: Rig, fake_hub: FakeHub) -> None:
    def answer(to: Handler) -> None:
        to.head(200, {"Content-Type": "application/json", "Content-Length": len(body)})
        to.wfile.write(body)

    fake_hub.gets = [answer]
    with pytest.raises(RigError) as caught:
        fetch(own)
    assert "\n" not in str(caught.value)
