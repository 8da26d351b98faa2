"""The published cost models give the published numbers."""

import json
from pathlib import Path

import pytest
import torch

from dspark.cost.published import PUBLISHED, published_cost

TRACES = Path(__file__).parents[2] / ".." / "shared" / "data" / "acceptance_traces"
DEPTHS = torch.arange(9)
SMARTSPEC_CONTEXT = 512


def _goodput(name: str, alpha: float, rows: int, matched: int | None = None) -> torch.Tensor:
    """Float64 [9] tokens/s at depths 0 to 8, as the tuner of arXiv 2406.14066 predicts them.

    ``matched`` of the rows have a draft and emit ``1 + alpha + ... + alpha**k`` tokens, the others
    one. The tuner adds the scheduled tokens (the input token of each row) to a count that holds
    them already.
    """
    matched = rows if matched is None else matched
    emitted = matched * (1 - alpha ** (DEPTHS + 1)) / (1 - alpha) + rows - matched
    pass_tokens = matched * (DEPTHS + 1) + rows - matched
    times = published_cost(name).step_time_s(
        decode_rows=torch.tensor(rows),
        tokens=pass_tokens + rows,
        context_tokens=torch.tensor(rows * SMARTSPEC_CONTEXT),
        draft_tokens=DEPTHS,
    )
    return emitted / times.total_s


@pytest.mark.parametrize(
    ("rows", "published"),
    [
        (1, [143.74, 206.54, 251.66, 276.11, 287.51, 290.72, 288.88, 284.01, 277.40]),
        (32, [4250.34, 5637.41, 6536.38, 6873.09, 6897.75, 6753.24, 6521.85, 6251.07, 5968.03]),
        (256, [21956.3, 21864.8, 22148.7, 21107.7, 19649.2]),
    ],
)
def test_smartspec_goodput_curves(rows, published):
    curve = _goodput("smartspec-llama-8b-h100-draft", 0.7, rows)[: len(published)]
    digit = 0.01 if rows < 256 else 0.1
    assert curve.tolist() == pytest.approx(published, abs=0.6 * digit)


@pytest.mark.parametrize(
    ("name", "alpha", "best"),
    [
        ("smartspec-llama-8b-h100-draft", 0.5, [3, 3, 2, 2, 0, 0]),
        ("smartspec-llama-8b-h100-draft", 0.7, [5, 5, 4, 3, 2, 2]),
        ("smartspec-llama-8b-h100-draft", 0.9, [8, 8, 8, 7, 5, 4]),
        ("smartspec-llama-8b-h100-ngram", 0.5, [7, 4, 3, 2, 1, 0]),
        ("smartspec-llama-8b-h100-ngram", 0.7, [8, 8, 5, 3, 2, 2]),
        ("smartspec-llama-8b-h100-ngram", 0.9, [8, 8, 8, 8, 6, 4]),
        ("smartspec-llama-70b-h100-ngram", 0.5, [7, 4, 2, 2, 1, 1]),
        ("smartspec-llama-70b-h100-ngram", 0.7, [8, 7, 4, 3, 2, 2]),
        ("smartspec-llama-70b-h100-ngram", 0.9, [8, 8, 8, 8, 6, 5]),
    ],
)
def test_smartspec_best_depths(name, alpha, best):
    found = [int(_goodput(name, alpha, rows).argmax()) for rows in (1, 8, 32, 64, 128, 256)]
    assert found == best


@pytest.mark.parametrize(("rows", "best"), [(8, 8), (64, 4), (256, 2)])
def test_smartspec_best_depths_when_half_of_the_rows_match(rows, best):
    curve = _goodput("smartspec-llama-8b-h100-ngram", 0.7, rows, matched=rows // 2)
    assert int(curve.argmax()) == best


def test_the_8b_fit_begins_at_the_context_it_was_made_for():
    assert PUBLISHED["smartspec-llama-8b-h100-draft"].min_context_tokens == pytest.approx(512, abs=0.5)
    assert PUBLISHED["smartspec-llama-70b-h100-ngram"].min_context_tokens == 0


def _illusion_speed_ups(path: Path, max_depth: int | None, batch_sizes: torch.Tensor) -> torch.Tensor:
    """Float64 [len(batch_sizes)]: the speed-ups of arXiv 2601.11580's simulator on a trace.

    A batch is one request copied. After the prefill, which yields one token, a step at output
    length n emits ``min(lengths[n - 1], k + 1)`` tokens; ``max_depth`` None is the oracle that
    drafts exactly what will be accepted. Speed-up is mean throughput over mean throughput.
    """
    cost = published_cost("illusion-llama3.1-8b-h100-eagle")

    def seconds(contexts: list[int], tokens: list[int], draft_tokens: list[int]) -> torch.Tensor:
        """Summed seconds of steps whose rows are all alike, for every batch size."""
        rows = batch_sizes[:, None]
        times = cost.step_time_s(
            decode_rows=rows,
            tokens=rows * torch.tensor(tokens),
            context_tokens=rows * torch.tensor(contexts),
            draft_tokens=torch.tensor(draft_tokens),
        )
        return times.total_s.sum(dim=1)

    plain_rates, rates = [], []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if not line:
            continue
        record = json.loads(line)
        prompt, lengths = len(record["prompt_token_ids"]), record["acc_eagle"]["acc_len"]
        prefill_s = seconds([0], [prompt], [0])
        plain = [prompt + n for n in range(1, len(lengths))]
        plain_s = prefill_s + seconds(plain, [1] * len(plain), [0] * len(plain))
        n, contexts, widths = 1, [], []
        while n < len(lengths):
            width = lengths[n - 1] if max_depth is None else max_depth + 1
            contexts.append(prompt + n)
            widths.append(width)
            n += min(lengths[n - 1], width)
        # the simulator's draft term takes the width of a row in the pass, its input token included
        step_s = prefill_s + seconds(contexts, widths, widths)
        plain_rates.append(len(lengths) / plain_s)
        rates.append(len(lengths) / step_s)
    return torch.stack(rates).mean(dim=0) / torch.stack(plain_rates).mean(dim=0)


@pytest.mark.parametrize(
    ("max_depth", "published"),
    [
        (1, [1.294, 1.277, 1.261, 1.232, 1.190, 1.136]),
        (3, [1.810, 1.726, 1.646, 1.521, 1.357, 1.182]),
        (5, [2.010, 1.861, 1.726, 1.530, 1.295, 1.070]),
        (None, [2.129, 2.056, 1.984, 1.869, 1.713, 1.538]),
    ],
)
def test_illusion_speed_ups_on_gsm8k(max_depth, published):
    path = TRACES / "llama3.1-8b_gsm8k.jsonl"
    if not path.exists():
        pytest.skip("the acceptance traces are not beside the repository")
    found = _illusion_speed_ups(path, max_depth, torch.tensor([1, 8, 16, 32, 64, 128]))
    assert found.tolist() == pytest.approx(published, abs=6e-4)


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(
        ValueError, match=r"'smartspec-llama-8b-h100': did you mean 'smartspec-llama-8b-h100-"
    ) as e:
        published_cost("smartspec-llama-8b-h100")
    assert all(name in str(e.value) for name in PUBLISHED)
