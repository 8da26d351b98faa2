"""Appendix A of DSpark in fractions: which decisions bias the output, and under which verification."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape

if TYPE_CHECKING:
    from dspark.policies.base import Policy

NUM_HUNTED, NUM_HUNTED_QUICK = 200, 100
ROUNDING = 1e-6  # confidences are float32, as drafters give them

SHARED = "the target's law; that choosing with shared noise keeps it: Daliri et al., arXiv 2408.07978"

THROUGHPUTS = (
    Claim(what="Θ of 0 drafts", paper=1.0, tolerance=ROUNDING, unit="tokens/s"),
    Claim(what="Θ of 1 draft", paper=0.9, tolerance=ROUNDING, unit="tokens/s"),
    Claim(what="Θ of 2 drafts where the first is A", paper=1.134, tolerance=ROUNDING, unit="tokens/s"),
    Claim(what="Θ of 2 drafts where the first is B", paper=0.81, tolerance=ROUNDING, unit="tokens/s"),
)
LENGTHS = (
    Claim(what="drafts verified without early stop where the first is A", paper=2),
    Claim(what="drafts verified without early stop where the first is B", paper=0),
)
BIASED = Claim(what="Pr(first token is A) without early stop, rejection sampling", paper=0.85)
STOPPED = Claim(what="Pr(first token is A) with early stop, rejection sampling", paper=0.7)
STOPPED_LAW = Claim(
    what="distance of the law of whole outputs from the target's with early stop, rejection sampling", paper=0
)
COUPLED = Claim(what="Pr(first token is A) without early stop, coupled", paper=0.7, note=SHARED)
COUPLED_LAW = Claim(
    what="distance of the law of whole outputs from the target's without early stop, coupled",
    paper=0,
    note=SHARED,
)
HUNTED_STOPPED = Claim(what="random decisions that hang on their own token, early stop", paper=0)
HUNTED = Claim(what="random decisions that hang on their own token, arg max", shape=Shape(above=0))
HUNTED_BIASED = Claim(what="worlds of these whose output law is biased, rejection", shape=Shape(above=0))
HUNTED_COUPLED = Claim(what="worlds of these whose output law is biased, coupled", paper=0, note=SHARED)


def run(context: Context) -> Outcome:
    """Enumerates; nothing is sampled."""
    from dspark.analysis.audit import EXACT_RULES
    from dspark.analysis.audit.cases import appendix_a
    from dspark.analysis.audit.output_law import output_law
    from dspark.policies.prefix_scheduler import PrefixScheduler
    from dspark.policies.retrospective_argmax import RetrospectiveArgmax
    from experiments.e03_selection_bias.figure import draw

    policies = {
        "arg max over all lengths": RetrospectiveArgmax(depth=2),
        "early stop (Algorithm 1)": PrefixScheduler(depth=2),
    }
    laws = {
        (name, rule): output_law(policy, appendix_a(), exact)
        for name, policy in policies.items()
        for rule, exact in EXACT_RULES.items()
        if rule != "greedy"  # where the target's law is its arg max
    }
    firsts = {key: _first_is_a(law.row(0)) for key, law in laws.items()}
    biased, stopped = ((name, "rejection") for name in policies)
    coupled = (biased[0], "coupled")
    draw(firsts, context.folder / "first_token.png", target=0.7)
    return Outcome(
        claims=(
            *_throughputs(policies[biased[0]]),
            BIASED.measured(firsts[biased]),
            STOPPED.measured(firsts[stopped]),
            STOPPED_LAW.measured(laws[stopped].bias),
            COUPLED.measured(firsts[coupled]),
            COUPLED_LAW.measured(laws[coupled].bias),
            *_hunted(NUM_HUNTED_QUICK if context.quick else NUM_HUNTED),
        ),
        figures=(
            Figure(
                file="first_token.png",
                caption="Probability that the first token is A by verification rule; the line is the "
                "target's 0.7.",
                alt="Bars. The arg max gives 0.85 under rejection and block verification and 0.7 under "
                "coupled; the early stop gives 0.7 under all three.",
            ),
        ),
        tables=(
            ResultTable(
                title="Pr(first token is A) on the world of Appendix A, exact",
                columns=("policy", "verification", "as a fraction", "distance of the whole law"),
                rows=tuple(
                    (name, rule, str(firsts[name, rule]), str(law.bias)) for (name, rule), law in laws.items()
                ),
            ),
        ),
        notes=(
            "The policies decide with the code that the engine runs; the chances of drafts and of "
            "verification are enumerated in fractions, so a distance of 0 is exactly 0.",
            "Without early stop, whether the first draft is verified depends on what the second one "
            "promises, and so on the first one's token. Rejection sampling corrects for q on the drafts it "
            "sees, not for which drafts it is shown. Under coupled verification the token of a position is "
            "the target's own choice with the position's own noise, drafted or not: a draft only says how "
            "early it is known, so no choice of lengths can move the law.",
            "Toy worlds of two or three tokens refute; for what they do not refute, Appendix A has the "
            "proof.",
        ),
    )


def _throughputs(policy: Policy) -> list[Claim]:
    """Θ and verify lengths on the first step's drafts."""
    from dspark.analysis.audit import EXACT_RULES
    from dspark.analysis.audit.cases import appendix_a
    from dspark.analysis.audit.drive import Drive
    from dspark.policies.search import rank, throughput
    from dspark.types import Signal

    drive = Drive(policy, appendix_a(), EXACT_RULES["rejection"])
    found = {}
    for decided in drive.decide(drive.begin()):
        (draft,), (length,), record = decided.drafts, decided.lengths, decided.record
        assert record is not None
        survival = record.signals[Signal.CONFIDENCE].cumprod(1)
        curve = throughput(decided.drafting.ctx, rank(survival, record.lengths), record.lengths.max())
        found[draft[0]] = (curve.tolist(), length)  # the second token changes neither
    (after_a, length_a), (after_b, length_b) = found[0], found[1]
    values = (after_a[0], after_a[1], after_a[2], after_b[2])
    return [
        *(claim.measured(value) for claim, value in zip(THROUGHPUTS, values, strict=True)),
        *(claim.measured(value) for claim, value in zip(LENGTHS, (length_a, length_b), strict=True)),
    ]


def _hunted(tries: int) -> list[Claim]:
    """Small random worlds in which a first decision looks ahead, and what becomes of their output."""
    from dspark.analysis.audit import EXACT_RULES
    from dspark.analysis.audit.flips import hunt
    from dspark.analysis.audit.output_law import output_law
    from dspark.policies.prefix_scheduler import PrefixScheduler
    from dspark.policies.retrospective_argmax import RetrospectiveArgmax

    stopping, retrospective = PrefixScheduler(depth=3), RetrospectiveArgmax(depth=3)
    none = hunt(stopping, tries=tries, seed=0, autoregressive=(False,))
    caught = hunt(retrospective, tries=tries, seed=0, autoregressive=(False,))
    biased = {
        rule: sum(output_law(retrospective, world, EXACT_RULES[rule]).bias > 0 for world in caught)
        for rule in ("rejection", "coupled")
    }
    return [
        HUNTED_STOPPED.measured(len(none), f"of {tries}"),
        HUNTED.measured(len(caught), f"of {tries}"),
        HUNTED_BIASED.measured(biased["rejection"], f"of {len(caught)}"),
        HUNTED_COUPLED.measured(biased["coupled"], f"of {len(caught)}; {SHARED}"),
    ]


def _first_is_a(law: dict[tuple[int, ...], Fraction]) -> Fraction:
    return sum((mass for output, mass in law.items() if output[0] == 0), Fraction(0))


EXPERIMENT = Experiment(
    name="e03_selection_bias",
    title="Selection bias",
    question="Does choosing lengths by looking at the whole draft bias the output, and when does it not?",
    source="DSpark, arXiv 2607.05147, Appendix A",
    minutes=1,
    run=run,
    claims=(
        *THROUGHPUTS,
        *LENGTHS,
        *(BIASED, STOPPED, STOPPED_LAW, COUPLED, COUPLED_LAW),
        *(HUNTED_STOPPED, HUNTED, HUNTED_BIASED, HUNTED_COUPLED),
    ),
)
