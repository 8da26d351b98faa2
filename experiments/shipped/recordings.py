"""One trace and one profile of the shipped drafter, made by whichever experiment asks first.

They lie beside the experiments' own folders, in a folder named after all that they depend on: drafter,
settings, and the sources of the package. So nobody reads what another drafter or an earlier revision left.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.reproduce import REPO
from experiments.shipped.models import BLOCK, RECORDINGS, drafter_files, models

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.reproduce import Context

NUM_REQUESTS, NEW_TOKENS = 36, 64
RECORD = (f"workload.num_requests={NUM_REQUESTS}", f"sampling.max_new_tokens={NEW_TOKENS}")
QUICK_RECORD = ("workload.num_requests=6", "sampling.max_new_tokens=10")
PROFILE = (
    *("profile.rows=[1,4,16,64]", "profile.tokens=[1,2,4,8,16,32,64,128,256]"),
    *("profile.contexts=[64,192]", "profile.depths=[1,4,7]", "profile.draft_rows=[1,4,16]"),
    "profile.repeats=3",
)
QUICK_PROFILE = (
    *("profile.rows=[1,2]", "profile.tokens=[1,2,16]", "profile.contexts=[8,16]", "profile.depths=[7]"),
    *("profile.draft_rows=[1,2]", "profile.draft_prompt_tokens=8", "profile.repeats=1"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordings:
    """Files to replay and to price by."""

    trace: Path  # all requests: greedy, drafts of a whole block at every position
    domains: Mapping[str, Path]  # the same, a trace a domain of the prompts
    profile: Path  # what steps take here


def profile(context: Context) -> Path:
    """The file of what steps take here with the drafter that the context chooses; made if it is not there.

    Raises:
        RuntimeError: `dspark profile` did not end well.
        KeyboardInterrupt: it was interrupted; the next call goes on there.
    """
    from experiments.reproduce.commands import dspark

    folder = _folder(context) / "profile"
    if not (folder / "profile.json").is_file():
        context.console.print(f"  steps are timed, into {folder}", markup=False)
        sizes = QUICK_PROFILE if context.quick else PROFILE
        dspark(["profile", *models(context), *sizes, "profile.path=null"], folder)
    return folder / "profile.json"


def recordings(context: Context) -> Recordings:
    """Trace and profile of the drafter that the context chooses; made if they are not there.

    Raises:
        RuntimeError: a command did not end well.
        KeyboardInterrupt: one was interrupted; the next call goes on there.
    """
    from experiments.reproduce.commands import dspark

    folder = _folder(context)
    trace = folder / "trace" / "trace.parquet"
    if not trace.is_file():
        context.console.print(f"  a trace is recorded, into {trace.parent}", markup=False)
        size = QUICK_RECORD if context.quick else RECORD
        dspark(["record", *models(context), *size, f"record.depth={BLOCK}"], trace.parent)
    return Recordings(trace=trace, domains=_by_domain(trace, folder), profile=profile(context))


def _by_domain(whole: Path, folder: Path) -> dict[str, Path]:
    """The trace's parts; the ids of the built-in prompts begin with their domain."""
    from dspark.analysis.replay.files import read_trace, write_trace
    from dspark.workload.sources import DOMAINS

    trace = read_trace(whole)
    found = {}
    for domain in DOMAINS:
        own = [place for place, name in enumerate(trace.request_ids) if name.startswith(f"{domain}-")]
        found[domain] = folder / f"{domain}.parquet"
        if not found[domain].is_file():
            write_trace(trace.of(own), found[domain])
    return found


def _folder(context: Context) -> Path:
    """Where the recordings are, or will be."""
    digest = hashlib.sha256(repr((context.quick, RECORD, QUICK_RECORD, PROFILE, QUICK_PROFILE)).encode())
    sources = sorted([*(REPO / "dspark").rglob("*.py"), *(REPO / "configs").rglob("*.yaml")])
    for path in [*sources, *drafter_files(context)]:
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return context.folder.parent / RECORDINGS / digest.hexdigest()[:12]
