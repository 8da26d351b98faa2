"""Where the YAML files are."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def config_dir() -> Path:
    """The folder of the primary configs: inside an installed package, else beside its sources.

    Raises:
        ValueError: neither is there.
    """
    for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs"):
        if (folder / "run.yaml").is_file():
            return folder
    raise ValueError(
        f"the YAML files of dspark are neither in {_PACKAGE / 'configs'} nor in "
        f"{_PACKAGE.parent / 'configs'}: install it again"
    )
