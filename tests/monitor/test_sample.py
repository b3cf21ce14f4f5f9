"""The sample of the parameters on which a step is measured."""

from __future__ import annotations

import pytest
import torch

from surefoot.monitor import StabilityMonitor, _sample
from surefoot.monitor._columns import SAMPLED
from surefoot.monitor._sample import StepSample


def columns(monitor):
    found = monitor.numbers()
    return {name: found[name] for name in SAMPLED}


def gradient_and_point(problem):
    return torch.cat([p.grad.reshape(-1) for p in problem.model.parameters()]).double(), problem.point().double()


@pytest.mark.parametrize("every", [1, 3])
def test_inner_products_are_those_of_the_step_and_of_the_gradient_after_it(problem, every):
    optimizer = torch.optim.AdamW(problem.model.parameters(), lr=1e-2)
    gradients, points = [], [problem.point().double()]
    with StabilityMonitor(optimizer, every=every) as monitor:
        for _ in range(7):
            problem.train(optimizer, 1, monitor)
            gradient, point = gradient_and_point(problem)
            gradients.append(gradient)
            points.append(point)
    found = columns(monitor)
    for row, step in enumerate(range(0, 7, every)):
        moved = points[step] - points[step + 1]
        assert found["slope"][row] == pytest.approx(float(gradients[step] @ moved), rel=1e-5)
        assert found["moved_sq"][row] == pytest.approx(float(moved @ moved), rel=1e-5)
        assert found["point_sq"][row] == pytest.approx(float(points[step] @ points[step]), rel=1e-6)
        away = points[step] - points[0]
        assert found["away_sq"][row] == pytest.approx(float(away @ away), rel=1e-6)
        assert found["back"][row] == pytest.approx(float(gradients[step] @ away), rel=1e-5)
        if row:
            last = step - every
            expected = float(gradients[last + 1] @ (points[last] - points[last + 1]))
            assert found["carried"][row] == pytest.approx(expected, rel=1e-5)
    assert torch.isnan(torch.tensor(found["carried"][0]))


def test_a_large_network_is_looked_at_in_part(monkeypatch):
    monkeypatch.setattr(_sample, "LIMIT", 1000)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sample = StepSample(optimizer)
    model(torch.randn(4, 64)).square().mean().backward()
    found = sample.before() | sample.gradient()
    optimizer.step()
    found |= sample.after()
    assert sample.elements <= 1000 + 16
    # a step along the gradient has the same angle and the same length over the gradient's on every sample
    assert float(found["slope"]) == pytest.approx(0.1 * float(found["sample_sq"]), rel=1e-4)
    whole = sum(float(p.grad.square().sum()) for p in model.parameters())
    total = sum(p.numel() for p in model.parameters())
    assert float(found["sample_sq"]) / sample.elements == pytest.approx(whole / total, rel=0.6)


@pytest.mark.parametrize("least", [1, 2, 4, 9, 25, 100])
def test_the_stride_is_a_prime(least):
    stride = _sample._prime(least)
    assert stride >= least
    assert all(stride % divisor for divisor in range(2, stride))


def test_a_group_that_is_added_starts_the_sample_anew(another):
    problem = another()
    first, _, last = problem.model
    optimizer = torch.optim.SGD(last.parameters(), lr=0.1)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 2, monitor)
        optimizer.add_param_group({"params": list(first.parameters())})
        problem.train(optimizer, 2, monitor)
    found = columns(monitor)
    assert found["away_sq"][2] == 0.0
    assert torch.isnan(torch.tensor(found["carried"])).tolist() == [True, False, True, False]
