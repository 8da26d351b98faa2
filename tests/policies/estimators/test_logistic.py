"""The penalised logistic fit against scikit-learn's, and where data are separable or alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from dspark.policies.estimators.logistic import fit_logistic

START = torch.tensor([[0.0, 1.5]])


def simulated(slope: float, intercept: float, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Margins (an exponential's, mean 2) and labels drawn by the logistic law."""
    rng = np.random.default_rng(seed)
    margin = rng.exponential(2.0, n)
    label = rng.random(n) < 1 / (1 + np.exp(-(slope * margin + intercept)))
    return torch.from_numpy(margin)[None], torch.from_numpy(label)[None]


def by_scikit_learn(margin: torch.Tensor, label: torch.Tensor, l2: float) -> list[float]:
    """The same objective: C = 1 / l2, and the intercept as a penalised column of ones."""
    columns = torch.stack([margin[0], torch.ones_like(margin[0])], dim=1).numpy()
    model = LogisticRegression(C=1 / l2, fit_intercept=False, tol=1e-10, solver="newton-cholesky")
    return model.fit(columns, label[0].numpy()).coef_[0].tolist()


@pytest.mark.parametrize("l2", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize(("slope", "intercept"), [(0.8, -0.5), (0.0, 1.5), (-0.3, 2.0), (3.0, -4.0)])
def test_equals_scikit_learn_with_the_same_penalty(slope, intercept, l2):
    margin, label = simulated(slope, intercept, 400, seed=1)
    fitted = fit_logistic(margin, label, torch.ones_like(label), START, l2=l2)
    assert fitted[0].tolist() == pytest.approx(by_scikit_learn(margin, label, l2), rel=1e-5, abs=1e-5)


def test_recovers_the_law_the_labels_were_drawn_from():
    margin, label = simulated(0.8, -0.5, 40_000, seed=2)
    fitted = fit_logistic(margin, label, torch.ones_like(label), START, l2=1e-3)[0]
    # asymptotic standard errors, from the information matrix at the truth
    p = torch.sigmoid(0.8 * margin[0] - 0.5)
    design = torch.stack([margin[0], torch.ones_like(margin[0])], dim=1)
    errors = torch.linalg.inv(design.T @ ((p * (1 - p))[:, None] * design)).diagonal().sqrt()
    assert errors.max() < 0.03
    assert bool(((fitted - torch.tensor([0.8, -0.5])).abs() < 4 * errors).all())


def test_data_sets_are_fitted_by_themselves_and_what_is_no_sample_does_not_count():
    margin_a, label_a = simulated(0.8, -0.5, 300, seed=3)
    margin_b, label_b = simulated(0.2, 1.0, 200, seed=4)
    padding = torch.full((1, 100), torch.nan, dtype=torch.float64)
    margins = torch.cat([margin_a, torch.cat([margin_b, padding], dim=1)])
    labels = torch.cat([label_a, torch.cat([label_b, torch.ones(1, 100, dtype=torch.bool)], dim=1)])
    is_sample = torch.ones(2, 300, dtype=torch.bool)
    is_sample[1, 200:] = False
    together = fit_logistic(margins, labels, is_sample, START.expand(2, -1), l2=0.1)
    for row, (margin, label) in enumerate([(margin_a, label_a), (margin_b, label_b)]):
        alone = fit_logistic(margin, label, torch.ones_like(label), START, l2=0.1)
        torch.testing.assert_close(together[[row]], alone, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("start", [[0.0, 1.5], [20.0, -30.0], [-5.0, 40.0]])
def test_the_start_does_not_matter(start):
    """The second start is so far off that full Newton steps would leave for good."""
    margin, label = simulated(0.8, -0.5, 200, seed=5)
    fitted = fit_logistic(margin, label, torch.ones_like(label), torch.tensor([start]), l2=1e-3)
    assert fitted[0].tolist() == pytest.approx(by_scikit_learn(margin, label, 1e-3), rel=1e-5, abs=1e-5)


def test_labels_that_agree_give_a_finite_intercept():
    """n accepted at margin 0 leave b with n·sigmoid(−b) = l2·b, and w alone with its penalty."""
    margin, label = torch.zeros(1, 60), torch.ones(1, 60, dtype=torch.bool)
    w, b = fit_logistic(margin, label, label, START, l2=1e-3)[0].tolist()
    assert w == 0
    assert 60 / (1 + np.exp(b)) == pytest.approx(1e-3 * b, rel=1e-6)


def test_separable_data_give_finite_coefficients_that_separate():
    margin = torch.linspace(0, 4, 80)[None]
    label = margin > 2
    fitted = fit_logistic(margin, label, torch.ones_like(label), START, l2=1e-3)
    assert bool(fitted.isfinite().all())
    assert torch.equal(fitted[:, :1] * margin + fitted[:, 1:] > 0, label)
