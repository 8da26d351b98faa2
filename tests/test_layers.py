"""Imports go down the rooms only, and the contracts that say so catch the imports that do not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINT_IMPORTS), "--config", str(root / "pyproject.toml"), "--no-cache"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_every_contract_is_kept() -> None:
    result = _lint(REPO)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("types.py", "import dspark.engine", "Imports go down the rooms only"),
        ("drafters/base.py", "import dspark.policies.base", "Imports go down the rooms only"),
        ("attic/__init__.py", "", "Imports go down the rooms only"),
        ("engine/__init__.py", "import dspark.metrics", "does not know who counts them"),
        ("policies/base.py", "import dspark.drafters.base", "not the drafter behind them"),
        ("analysis/__init__.py", "import dspark.models.target", "Analysis reads traces"),
        ("metrics/__init__.py", "import omegaconf", "sees Hydra or OmegaConf"),
        ("cli/__init__.py", "import experiments", "never the reverse"),
    ],
)
def test_a_wrong_import_breaks_its_contract(file: str, line: str, contract: str, tmp_path: Path) -> None:
    shutil.copytree(REPO / "dspark", tmp_path / "dspark", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").touch()
    path = tmp_path / "dspark" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    result = _lint(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    verdicts = re.findall(r"(.+?) (KEPT|BROKEN)", " ".join(result.stdout.split()))
    assert any(contract in name and verdict == "BROKEN" for name, verdict in verdicts), result.stdout
