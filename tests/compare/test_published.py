"""published.yaml: every figure as the study gives it, and the same in the rig's README."""

from pathlib import Path

import pytest
import yaml

from common import kinds, rig
from common.compare import published
from common.errors import RigError
from common.rig import ROOT

CARDS = ["3050oem", "1650ti"]
QUOTED = [f"local-llamacpp-{card}-{model}-q4_0" for card in CARDS for model in ("2b", "4b")]
# The study's table, typed again: no drafter in tokens/s, speed-up, best draft length, repeat in %.
TABLE = {
    "local-llamacpp-3050oem-2b-q4_0": (108.2, 1.40, 2, 0.3),
    "local-llamacpp-3050oem-4b-q4_0": (58.3, 1.72, 2, 0.3),
    "local-llamacpp-1650ti-2b-q4_0": (76.5, 1.18, 1, 2.0),
    "local-llamacpp-1650ti-4b-q4_0": (38.0, 1.49, 1, 2.0),
}
GSM8K = dict(zip(QUOTED, (1.76, 2.23, 1.34, 1.78), strict=True))


def test_which_rigs_have_published_figures() -> None:
    found = {folder.name for folder in rig.all_rigs() if (folder / published.FILE).is_file()}
    assert found == set(QUOTED)
    assert published.load(ROOT / "local-llamacpp-cpu-tiny-q4_0") == []


@pytest.mark.parametrize("name", QUOTED)
def test_the_headline_figures(name: str) -> None:
    by_title = {figure["title"]: figure for figure in published.load(ROOT / name)}
    titles = [
        "no drafter",
        "speed-up at the best draft length",
        "best draft length",
        "first draft setting repeated at the end, within",
    ]
    assert tuple(by_title[title]["value"] for title in titles) == TABLE[name]
    assert by_title["speed-up on GSM8K (1,319 questions)"]["value"] == GSM8K[name]
    assert (
        by_title["speed-up at the best draft length"]["conditions"]["draft_length"]
        == (TABLE[name][2])
    )
    for figure in by_title.values():
        assert figure["source"] == "published study, October 2026"


@pytest.mark.parametrize("name", QUOTED)
def test_conditions_are_the_rigs(name: str) -> None:
    """The rig is made after the study: card, engine, CUDA and launch line must be the same."""
    loaded = rig.load(ROOT / name, environ={})
    figure = published.load(ROOT / name)[0]
    known, settings = figure["conditions"], loaded.settings()
    assert known["card"].replace(" ", "_") == loaded.gpu_name
    assert known["engine_commit"] == loaded.llama_cpp_commit
    assert (loaded.cuda_version or "").startswith(known["cuda"])
    assert known["settings"].items() <= settings.items()


@pytest.mark.parametrize("name", QUOTED)
def test_the_readme_shows_the_same_figures(name: str) -> None:
    table = published.table(published.load(ROOT / name))
    assert table in (ROOT / name / "README.md").read_text(), f"README.md should hold:\n{table}"


@pytest.mark.parametrize("name", QUOTED)
def test_a_figure_belongs_to_a_kind_that_can_be_measured(name: str) -> None:
    for figure in published.load(ROOT / name):
        assert kinds.of(figure["what"]).has_rows


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ({"value": 1.4, "unit": "x"}, "1.40x"),
        ({"value": 108.2, "unit": "tokens/s"}, "108.2 tokens/s"),
        ({"value": 120000, "unit": "tokens"}, "120,000 tokens"),
        ({"value": 1, "unit": "tokens"}, "1 token"),
        ({"value": 2.0, "unit": "%"}, "2.0%"),
        ({"value": 0.012, "unit": "share"}, "0.012"),
        ({"range": [0.43, 0.5], "unit": "share"}, "0.43 to 0.50"),
        ({"range": [72, 84], "unit": "MiB"}, "72 to 84 MiB"),
        (
            {"value": 0.003, "unit": "share", "interval": [-0.0061, 0.0129]},
            "0.0030 (95%: -0.0061 to 0.0129)",
        ),
        ({"statement": "the same"}, "the same"),
    ],
)
def test_in_words(figure: dict[str, object], words: str) -> None:
    empty = dict.fromkeys(["value", "range", "interval", "statement", "unit"])
    assert published.in_words({**empty, **figure}) == words


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hello": 1}, "hello"),
        ({"source": None}, "source"),
        ({"figures": []}, "figures"),
        ({"figures": [{"title": "a", "what": "speed", "quantity": "b"}]}, "figures/0"),
        (
            {
                "figures": [
                    {"title": "a", "what": "speed", "quantity": "b", "value": "fast", "unit": "x"}
                ]
            },
            "figures/0/value",
        ),
        (
            {
                "figures": [
                    {
                        "title": "a",
                        "what": "speed",
                        "quantity": "b",
                        "value": 1,
                        "unit": "x",
                        "statement": "c",
                    }
                ]
            },
            "figures/0",
        ),
        ({"conditions": {"card": "RTX 3050"}}, "conditions"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    known = yaml.safe_load((ROOT / QUOTED[0] / published.FILE).read_text())
    path = tmp_path / published.FILE
    path.write_text(yaml.safe_dump({**known, **change}))
    with pytest.raises(RigError, match=said):
        published.load(tmp_path)


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / published.FILE).write_text("figures: [")
    with pytest.raises(RigError, match=r"published\.yaml cannot be read"):
        published.load(tmp_path)
