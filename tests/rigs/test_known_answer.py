"""make new-rig SIZE=tiny: the known-answer rig for a card keeps the rules of every rig."""

from pathlib import Path

import pytest
import yaml

from common import rig
from common.errors import RigError
from common.files import wanted
from common.rig import ROOT
from common.rigs import folder as rig_folder
from common.rigs.cards import CARDS
from common.rigs.known_answer import KnownAnswer
from tests.helpers import rig_rules
from tests.rigs.test_new_rig import copy_of_the_tree, in_table

NAME = "local-llamacpp-l4-tiny-q4_0"
CPU = "local-llamacpp-cpu-tiny-q4_0"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_of_the_tree(tmp_path_factory.mktemp("tiny") / "tree")
    code, out, err = rig_rules.make(
        root, "new-rig", "SIZE=tiny", "GPU=NVIDIA L4", PYTHONPATH=str(root)
    )
    assert code == 0, err
    assert f"made {NAME} with its service in compose.yaml and its line in README.md\n" in out
    return root


def test_it_keeps_the_rules_of_every_rig(tree: Path, tmp_path: Path) -> None:
    folder = tree / NAME
    mine = rig.load(folder, {})
    rig_rules.loads_under_a_true_name(folder)
    rig_rules.is_only_data(folder)
    rig_rules.reads_the_same_in_python_bash_and_make(folder, tmp_path)
    compose = yaml.safe_load((tree / "compose.yaml").read_text())
    rig_rules.service_agrees(tree, compose, mine)
    rig_rules.runs_in_its_image(tree, NAME, in_image=True)
    assert in_table(tree) == [*in_table(ROOT), NAME]
    assert [file.made_here for file in wanted.wanted(mine)] == [True, True]


def test_it_differs_from_that_of_the_cpu_in_engine_and_card_alone(tree: Path) -> None:
    ours, theirs = (rig.load(folder, {}) for folder in (tree / NAME, ROOT / CPU))
    differ = {key for key, value in ours.settings().items() if theirs.settings()[key] != value}
    assert differ == {
        *("BACKEND", "ENGINE", "GPU_NAME", "LLAMA_CPP_COMMIT", "CUDA_VERSION"),
        *("CUDA_ARCHITECTURES", "N_GPU_LAYERS", "THREADS", "PORT", "SWEEP_PROMPTS"),
        *("BUILDS_ENGINE", "BUILDS_CUDA_VERSION"),
    }


def test_its_readme_claims_nothing(tree: Path) -> None:
    text = (tree / NAME / "README.md").read_text()
    assert "it has not been run on its card" in text
    assert "speeds say nothing about Gemma" in text


def test_it_is_made_once(tree: Path) -> None:
    with pytest.raises(RigError, match="exists already and is left as it is"):
        rig_folder.make(KnownAnswer(CARDS["l4"]), tree)
