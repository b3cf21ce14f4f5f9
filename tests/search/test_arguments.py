"""Bad input meets an error that names it, before any step is taken."""

import numpy as np
import pytest

from surefoot.search import NoRateWorks, Run, RunError, tune


class Constant(Run):
    """A run of constant numbers."""

    def __init__(self, loss=1.0, delta=0.1):
        self.loss, self.delta = loss, delta

    def advance(self, k):
        return [self.loss] * k, [self.delta] * k

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def never(lr, seed):
    raise AssertionError("no run should be made")


@pytest.mark.parametrize(
    ("lrs", "message"),
    [
        ([0.1, 0.1], "lrs must be distinct, got 0.1 2 times"),
        ([-0.1, 0.1], r"lrs\[0\] must be above 0, got -0.1"),
        ([0.0, 0.1], r"lrs\[0\] must be above 0, got 0.0"),
        ([0.1, np.nan], r"lrs\[1\] must be a finite number, got nan"),
        ([0.1, np.inf], r"lrs\[1\] must be a finite number, got inf"),
        ([], "lrs must hold at least one rate"),
    ],
)
def test_bad_rates(lrs, message):
    with pytest.raises(ValueError, match=message):
        tune(never, lrs, 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"horizon": 2.5}, "horizon must be a whole number of at least 1, got 2.5"),
        ({"horizon": None}, "horizon must be given"),
        ({"horizon": 10**9}, "horizon must be at most 100000000, got 1000000000"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ({"seeds": [1, 1]}, "seeds must be distinct"),
        ({"refine": -1}, "refine must be a whole number of at least 0, got -1"),
        ({"max_states": 0}, "max_states must be a whole number of at least 1, got 0"),
        ({"schedule": np.ones(3)}, "schedule must be a name or 10 factors"),
        ({"schedule": np.zeros(10)}, "schedule must have finite factors of at least 0, and one above 0"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        tune(never, [0.1, 1.0], **({"horizon": 10} | options))


def test_maximising_needs_an_evaluation():
    with pytest.raises(TypeError, match=r"maximize=True needs runs with evaluate\(\); those of run_factory have none"):
        tune(lambda lr, seed: Constant(), [0.1, 1.0], 10, maximize=True)


@pytest.mark.parametrize(("factory", "message"), [(3, "run_factory must be called"), ({}, "at least one method")])
def test_bad_factories(factory, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tune(factory, [0.1], 10)


@pytest.mark.parametrize("lrs", [0.5, np.float32(0.5), {"from": 0.5, "to": 2.0, "count": 3}])
def test_rates_are_given_as_for_a_study(lrs):
    assert tune(lambda lr, seed: Constant(loss=lr), lrs, 5).lr == 0.5


def test_a_factory_that_makes_no_run():
    with pytest.raises(TypeError, match=r"must return a surefoot\.search\.Run, with advance\(k\)"):
        tune(lambda lr, seed: 3, [0.1], 10)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 10])
def test_few_steps_compare_all_rates(horizon):
    lrs = np.geomspace(0.01, 1.0, 9)
    found = tune(lambda lr, seed: Constant(loss=1.0 + abs(lr - lrs[5])), lrs, horizon)
    assert found.lr == lrs[5]


def test_huge_numbers_are_numbers():
    """Sums may overflow to ∞, without a warning."""
    found = tune(lambda lr, seed: Constant(loss=1e308 * lr, delta=1e308 * lr), [0.1, 1.0], 20)
    assert found.lr == 0.1


class TestRunsThatMisbehave:
    def test_one_that_raises(self):
        class Broken(Constant):
            def advance(self, k):
                raise OSError("disk gone")

        with pytest.raises(RunError, match=r"lr=0.1, seed 0, after 0 steps raised OSError: disk gone") as caught:
            tune(lambda lr, seed: Broken(), [0.1, 1.0], 10)
        assert isinstance(caught.value.__cause__, OSError)

    @pytest.mark.parametrize("answer", [None, 3, ([1.0], [1.0]), ([1.0] * 3, [1.0] * 4), ("a", "b")])
    def test_one_that_answers_nonsense(self, answer):
        class Odd(Constant):
            def advance(self, k):
                return answer

        with pytest.raises(RunError, match=r"advance\(\d+\)"):
            tune(lambda lr, seed: Odd(), [0.1], 96)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_rate_works(value):
    with pytest.raises(NoRateWorks, match=r"none of 5 .* at step 0: look at the batch .*lr=0.01: not finite at step 0"):
        tune(lambda lr, seed: Constant(loss=value), np.geomspace(0.01, 1, 5), 20)


def test_one_rate_that_works_is_found_among_those_that_do_not():
    lrs = np.geomspace(1e-4, 1.0, 17)
    found = tune(lambda lr, seed: Constant(loss=1.0 if lr == lrs[1] else np.nan), lrs, 50)
    assert found.lr == lrs[1]
