"""KL(q || p) of verified positions equals the definition; other positions are NaN."""

import torch

from dspark.types import Draft, SamplingParams
from dspark.verification import SampledRow
from dspark.verification.divergence import divergence


def rows(count):
    return [
        SampledRow(params=SamplingParams(), tokens=[1, 2], num_prompt=1, eos_token_ids=(), seed=i)
        for i in range(count)
    ]


def test_sampled_and_point_mass_drafts():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([2, 0, 1])
    logits = torch.randn(3 + 3, 5, generator=generator)
    tokens = torch.tensor([[1, 4, 0], [2, 2, 2], [3, 0, 0]])
    q = torch.softmax(torch.randn(3, 3, 5, generator=generator), -1)
    p = torch.softmax(logits.double(), -1)
    # logits of row 0 start at 0, of row 1 at 3, of row 2 at 4
    places = {(0, 0): 0, (0, 1): 1, (2, 0): 4}

    got = divergence(rows(3), Draft(tokens=tokens, lengths=torch.tensor([3, 3, 3]), q=q), lengths, logits)
    point = divergence(
        rows(3), Draft(tokens=tokens, lengths=torch.tensor([3, 3, 3]), q=None), lengths, logits
    )
    for i in range(3):
        for k in range(3):
            if (i, k) not in places:
                assert torch.isnan(got[i, k])
                assert torch.isnan(point[i, k])
                continue
            at = p[places[i, k]]
            qd = q[i, k].double()
            torch.testing.assert_close(got[i, k].double(), (qd * (qd / at).log()).sum(), atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(point[i, k].double(), -at[tokens[i, k]].log(), atol=1e-6, rtol=1e-5)


def test_zero_probabilities_of_q_count_nothing():
    q = torch.tensor([[[1.0, 0.0]]])
    logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    got = divergence(
        rows(1), Draft(tokens=torch.tensor([[0]]), lengths=torch.tensor([1]), q=q), torch.tensor([1]), logits
    )
    torch.testing.assert_close(got, torch.tensor([[2.0]]).log())
