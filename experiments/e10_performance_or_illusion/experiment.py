"""The published simulator's curves by replaying its own traces under its own coefficients, and headroom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e10_performance_or_illusion.published import (
    ACCEPTED_LENGTHS,
    BATCH_SIZES,
    FIXED,
    NUM_REQUESTS,
    SPEEDUPS,
    Rule,
    file_of,
)
from experiments.reproduce import (
    REPO,
    Claim,
    Context,
    Experiment,
    Figure,
    Need,
    Outcome,
    ResultTable,
    Setting,
    Shape,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Found = Mapping[str, Mapping[Rule, Sequence[float]]]
    """Our speed-ups by prompts, rule and batch size."""

TRACES = "traces"
RELATIVE = 0.01
QUICK_BATCH_SIZES, QUICK_REQUESTS = (1, 8, 128), 3
SHORTENED = "left out of the shortened run"


def _speedup_claim(prompts: str, rule: Rule, place: int) -> Claim:
    paper = SPEEDUPS[prompts][rule][place]
    what = f"speed-up, {prompts}, {rule}, batch {BATCH_SIZES[place]}"
    return Claim(what=what, paper=paper, tolerance=RELATIVE * paper)


SPEEDUP_CLAIMS = {
    (prompts, rule, size): _speedup_claim(prompts, rule, place)
    for prompts, rules in SPEEDUPS.items()
    for rule in rules
    for place, size in enumerate(BATCH_SIZES)
}
LENGTH_CLAIMS = {
    prompts: Claim(
        what=f"mean accepted length of EAGLE-3, {prompts}",
        paper=length,
        tolerance=RELATIVE * length,
        note="theirs counts one round more a request, which would begin where the text ends",
    )
    for prompts, length in ACCEPTED_LENGTHS.items()
}


def headroom(rules: Mapping[Rule, Sequence[float]], place: int) -> float:
    """The oracle over the best fixed depth."""
    return rules["oracle"][place] / max(rules[rule][place] for rule in FIXED if rule in rules)


HEADROOM_CLAIMS = {
    prompts: Claim(
        what=f"headroom (oracle over best fixed depth) at batch 128 over that at batch 1, {prompts}",
        paper=headroom(rules, -1) / headroom(rules, 0),
        tolerance=2 * RELATIVE * headroom(rules, -1) / headroom(rules, 0),
        shape=Shape(above=1.0),
        note="of the published speed-ups",
    )
    for prompts, rules in SPEEDUPS.items()
}


def run(context: Context) -> Outcome:
    """Replays what is in the folder."""
    from experiments.e10_performance_or_illusion.figure import draw
    from experiments.e10_performance_or_illusion.speeds import Speeds

    folder = context.path(TRACES)
    assert folder is not None, "a need"
    sizes = QUICK_BATCH_SIZES if context.quick else BATCH_SIZES
    absent = {prompts: f"{folder} has no {file_of(prompts)}" for prompts in SPEEDUPS}
    found: dict[str, dict[Rule, list[float]]] = {}
    lengths: dict[str, float] = {}
    for prompts, rules in SPEEDUPS.items():
        if not (folder / file_of(prompts)).is_file():
            continue
        if context.quick and found:
            absent[prompts] = SHORTENED
            continue
        speeds = Speeds(folder, prompts, QUICK_REQUESTS if context.quick else NUM_REQUESTS)
        context.console.print(f"  {prompts}: {speeds.num_requests} requests", markup=False)
        lengths[prompts] = speeds.accepted_length()
        found[prompts] = {rule: speeds.speedups(rule, sizes) for rule in rules}
    draw(found, sizes, context.folder / "speedup.png")
    return Outcome(
        claims=tuple(_claims(found, lengths, sizes, absent)),
        figures=(
            Figure(
                file="speedup.png",
                caption="Modelled speed-up by batch size; lines are the replay, crosses the published "
                "numbers.",
                alt="A panel a set of prompts. All lines fall with the batch size; fixed depths cross, the "
                "deepest ends lowest; the oracle is above all of them and the gap widens; the combined "
                "oracle is highest.",
            ),
        ),
        tables=(_headroom_table(found, sizes),),
        notes=(
            "Speed-ups are of modelled seconds, by the coefficients published with the traces (Llama-3.1-8B "
            "on an H100). Each request decodes beside copies of itself, as in their simulator; a batch of "
            "different requests is what `dspark tune` and the load curves replay.",
            "The oracle verifies exactly what will be accepted. Best is the best of fixed depths 1, 3 and 5 "
            "at that batch size, so headroom is what a dynamic depth could still gain; it grows with load, "
            "where rejected tokens are paid for.",
            "Published are single numbers of the simulator, not of its paper, which prints curves. A part of "
            "what the paper's text says cannot be had from its data: the single-method oracle on "
            "instructcoder is 2.73 there, not about 2.2.",
        ),
    )


def _claims(
    found: Found, lengths: Mapping[str, float], sizes: Sequence[int], absent: Mapping[str, str]
) -> list[Claim]:
    claims = []
    for prompts, claim in LENGTH_CLAIMS.items():
        has = prompts in lengths
        claims.append(claim.measured(lengths[prompts]) if has else claim.left_out(absent[prompts]))
    for (prompts, rule, size), claim in SPEEDUP_CLAIMS.items():
        if prompts not in found:
            claims.append(claim.left_out(absent[prompts]))
        elif size not in sizes:
            claims.append(claim.left_out(SHORTENED))
        else:
            claims.append(claim.measured(found[prompts][rule][sizes.index(size)]))
    for prompts, claim in HEADROOM_CLAIMS.items():
        if prompts in found:
            rules = found[prompts]
            claims.append(claim.measured(headroom(rules, -1) / headroom(rules, 0)))
        else:
            claims.append(claim.left_out(absent[prompts]))
    return claims


def _headroom_table(found: Found, sizes: Sequence[int]) -> ResultTable:
    rows = []
    for prompts, rules in found.items():
        for place, size in enumerate(sizes):
            best = max((rule for rule in FIXED if rule in rules), key=lambda rule: rules[rule][place])
            rows.append(
                (
                    *(prompts, str(size), best, f"{rules[best][place]:.3f}", f"{rules['oracle'][place]:.3f}"),
                    f"{100 * (headroom(rules, place) - 1):.1f} %",
                )
            )
    return ResultTable(
        title="Headroom by batch size",
        columns=("prompts", "batch", "best fixed", "its speed-up", "oracle", "headroom"),
        rows=tuple(rows),
    )


def _missing(context: Context) -> str | None:
    folder: Path | None = context.path(TRACES)
    if folder is not None and any((folder / file_of(prompts)).is_file() for prompts in SPEEDUPS):
        return None
    return (
        f"no {file_of('gsm8k')} or the like in {folder}: get the acceptance traces of "
        f"github.com/SpecDecode-Bench/simulator and give {TRACES}=DIR"
    )


EXPERIMENT = Experiment(
    name="e10_performance_or_illusion",
    title="Performance or illusion: replay and headroom",
    question="Does a replay give the published curves, and how much could a dynamic depth still gain?",
    source="Speculative Decoding: Performance or Illusion?, arXiv 2601.11580",
    minutes=6,
    run=run,
    claims=(*LENGTH_CLAIMS.values(), *SPEEDUP_CLAIMS.values(), *HEADROOM_CLAIMS.values()),
    needs=(Need(what="the published acceptance traces", missing=_missing),),
    settings=(
        Setting(
            name=TRACES,
            what="folder of the acceptance traces of github.com/SpecDecode-Bench/simulator",
            default=str(REPO.parent / "shared" / "data" / "acceptance_traces"),
        ),
    ),
)
