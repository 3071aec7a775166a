"""The measuring itself, against a server of known speed and acceptance."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.engines.llamacpp import counters
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.rig import Rig
from common.serving import client
from common.serving.process import Server
from common.serving.reading import Reading
from tests.serving.tries import one_of_few_tries

Serve = Callable[..., str]


@pytest.fixture
def serve(tiny: Rig, fake: Callable[..., Engine], tmp_path: Path) -> Iterator[Serve]:
    """Start the fake with these settings; returns its address."""
    running: list[Server] = []

    def start(spec_type: str = "", n_max: int = 1, **settings: str) -> str:
        changes = {"SPEC_TYPE": spec_type, "SPEC_DRAFT_N_MAX": str(n_max)}
        server = Server(tiny.variant(changes), fake(**settings), tmp_path / "server.log", True)
        running.append(server)
        server.start()
        return tiny.url

    yield start
    for server in running:
        server.stop()


def ask(url: str, tokens: int = 128, limit_s: float = 30) -> client.Reply:
    return client.ask(url, [client.chat("hello", tokens, temperature=0)], limit_s)[0]


def test_decode_rate_and_ttft_are_the_truth(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    truths: list[dict[str, float]] = []
    take = Reading.take

    def listen(reading: Reading, event: dict[str, Any], now_ms: float) -> None:
        truths.extend([event["timings"]] if "timings" in event else [])
        take(reading, event, now_ms)

    monkeypatch.setattr(Reading, "take", listen)
    url = serve(rate="400", ttft_ms="50")

    def exact() -> bool:
        truths.clear()
        replies = [ask(url) for _ in range(9)]
        assert [reply.error for reply in replies] == [None] * 9
        assert {reply.predicted_per_second for reply in replies} == {400}
        # A busy machine can only make the client's reading of a first token late, so the earliest
        # is nearest to the truth; a rate can err both ways, so the middle one is.
        late_ms = [(r.ttft_ms or 0) - t["first_ms"] for r, t in zip(replies, truths, strict=True)]
        assert min(late_ms) > 0
        ratios = [
            (reply.client_per_second or 0) / truth["real_per_second"]
            for reply, truth in zip(replies, truths, strict=True)
        ]
        as_planned = min(truth["first_ms"] for truth in truths) == pytest.approx(50, abs=2)
        near = sorted(ratios)[4] == pytest.approx(1, abs=0.005)
        return min(late_ms) < 2 and as_planned and near

    assert one_of_few_tries(exact)


def test_chunks_are_not_tokens(serve: Serve) -> None:
    url = serve("draft-mtp", 2, rate="400", accept="2")

    def of_tokens() -> bool:
        reply = ask(url)
        assert reply.predicted_n == 128
        assert reply.text_chunks < 128 / 2
        return reply.client_per_second == pytest.approx(400, rel=0.02)

    assert one_of_few_tries(of_tokens)


def test_acceptance_is_exact(serve: Serve) -> None:
    url = serve("draft-mtp", 2, accept="2,0,1")
    before = counters.read(url)
    reply = ask(url, tokens=61)
    seen = counters.read(url) - before
    # The steps make 3, 1, 2 tokens in turn, so 60 tokens after the first take 30 drafts of 2;
    # but the last one drafts 1, since only two tokens are wanted.
    assert (reply.draft_n, reply.draft_n_accepted) == (59, 30)
    assert (seen.drafts, seen.drafted, seen.accepted) == (30, 59, 30)
    assert seen.accepted_per_pos == (20, 10)


METRICS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 12
llamacpp:tokens_predicted_total 1.5e+06
llamacpp:n_decode_total 4
"""


def test_a_server_without_a_drafter_counts_no_drafts() -> None:
    found = counters.parse(METRICS)
    assert (found.prompt_tokens, found.predicted_tokens, found.decodes) == (12, 1500000, 4)
    assert (found.drafts, found.drafted, found.accepted, found.accepted_per_pos) == (0, 0, 0, ())


@pytest.mark.parametrize(
    "text",
    ["", "<html>busy</html>", '{"error": {"code": 501}}', METRICS.replace("n_decode", "n_other")],
)
def test_a_reply_that_is_no_metrics_is_no_zero(text: str) -> None:
    with pytest.raises(RigError, match=r"^the reply has no llamacpp:n_decode_total, so it is not"):
        counters.parse(text)


def test_absent_drafts_are_absent(serve: Serve) -> None:
    reply = ask(serve())
    assert reply.error is None
    assert reply.draft_n is None
    assert reply.draft_n_accepted is None


def test_a_reply_without_timings_is_a_failure(serve: Serve) -> None:
    url = serve(fault="no-timings:2")
    reply = ask(url)
    assert reply.error is not None
    assert "no timings" in reply.error
    assert reply.predicted_per_second is None


def test_a_request_that_never_ends_times_out(serve: Serve) -> None:
    url = serve(fault="hang:2")
    start = time.monotonic()
    reply = ask(url, limit_s=1)
    assert reply.error == "no end after 1 s"
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(("fault", "word"), [("cut:2", "ended|lost"), ("error:2", "HTTP 500")])
def test_a_broken_reply_is_a_failure(serve: Serve, fault: str, word: str) -> None:
    reply = ask(serve(fault=fault))
    assert reply.error is not None
    assert any(part in reply.error for part in word.split("|"))


def test_nobody_listens(free_port: int) -> None:
    reply = ask(f"http://127.0.0.1:{free_port}")
    assert reply.error is not None
    assert "connection lost" in reply.error


def test_clocks_that_disagree_are_flagged() -> None:
    reply = client.Reply(ttft_ms=10, last_text_ms=1010, predicted_n=101, predicted_per_second=103)
    assert reply.client_per_second == 100
    assert reply.clocks_disagree
    reply.predicted_per_second = 101
    assert not reply.clocks_disagree


def test_reasoning_counts_as_first_text() -> None:
    reply = client.Reply()
    reading = Reading(reply)
    reading.take({"choices": [{"delta": {"role": "assistant", "content": None}}]}, 1)
    role_only = reply.ttft_ms
    reading.take({"choices": [{"delta": {"reasoning_content": "Hm"}}]}, 2)
    reading.take({"choices": [{"delta": {"content": "Yes"}}]}, 3)
    reading.end()
    assert role_only is None
    assert (reply.ttft_ms, reply.last_text_ms) == (2, 3)
    assert (reply.reasoning, reply.content) == ("Hm", "Yes")


def test_users_ask_one_after_the_other(serve: Serve) -> None:
    """Three users share eight requests: each sends the next when a reply has ended."""
    url = serve(rate="400", ttft_ms="30")
    bodies = [client.chat("hello", 20 + index) for index in range(8)]
    replies = client.ask(url, bodies, 30, users=3)
    assert [reply.error for reply in replies] == [None] * 8
    assert [reply.predicted_n for reply in replies] == [20 + index for index in range(8)]
    sent = [reply.sent_ms or 0 for reply in replies]
    ends = [one + (reply.wall_ms or 0) for one, reply in zip(sent, replies, strict=True)]
    assert sent == sorted(sent)
    for moment in sent:
        assert sum(began <= moment < end for began, end in zip(sent, ends, strict=True)) <= 3
    assert max(sent[:3]) < min(ends)
    late = [began - end for began, end in zip(sent[3:], sorted(ends), strict=False)]
    assert min(late) >= 0
    assert min(late) < 5


def test_a_closed_loop_ends(serve: Serve) -> None:
    """Of what is not sent in time there is no reply; what was sent is read to its end."""
    url = serve(rate="400", ttft_ms="30")
    replies = client.ask(url, [client.chat("hello", 40)] * 50, 30, users=2, for_s=0.2)
    assert {reply.error for reply in replies} == {None}
    assert 2 <= len(replies) <= 6


def test_requests_at_once_say_no_time_of_sending(serve: Serve) -> None:
    assert ask(serve()).sent_ms is None


def test_gaps_show_a_stall(serve: Serve) -> None:
    """Every token is 5 ms after the last, but one of them 205: read closely, that is seen."""
    url = serve(rate="200", stall_ms="200")

    def exact() -> bool:
        (reply,) = client.ask(url, [client.chat("hello", 41)], 30, closely=True)
        assert reply.error is None
        gaps = sorted(reply.gaps_ms or [])
        assert len(gaps) == 40
        return gaps[-1] == pytest.approx(205, abs=5) and gaps[20] == pytest.approx(5, abs=1)

    assert one_of_few_tries(exact)
    assert ask(url).gaps_ms is None
