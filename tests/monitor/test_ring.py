"""The buffer, on the host and as on a device (with CPU tensors standing in for those of a device)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from surefoot.monitor._ring import Ring

CPU = torch.device("cpu")


def rows(count):
    return [[float(i), torch.tensor(10.0 * i), math.nan if i % 2 else torch.tensor(float(i))] for i in range(count)]


def expected(count):
    return np.array([[i, 10.0 * i, math.nan if i % 2 else i] for i in range(count)], float).reshape(count, 3)


@pytest.mark.parametrize("device", [None, CPU])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 8, 9, 100])
def test_all_rows_come_back(device, count):
    ring = Ring(3, 4, device)
    for row in rows(count):
        ring.write(row)
    np.testing.assert_array_equal(ring.all(), expected(count))


def test_on_the_host_a_full_block_is_known_at_once():
    ring = Ring(3, 4)
    assert [ring.write(row) for row in rows(8)] == [False, False, False, True] * 2
    np.testing.assert_array_equal(ring.known, expected(8))


def test_on_a_device_a_block_is_taken_over_when_the_next_one_is_full():
    ring = Ring(3, 4, CPU)
    assert [ring.write(row) for row in rows(12)] == [False] * 7 + [True] + [False] * 3 + [True]
    np.testing.assert_array_equal(ring.known, expected(8))


def test_a_tensor_that_changes_later_does_not_change_a_row():
    ring = Ring(1, 4, CPU)
    value = torch.tensor(1.0)
    ring.write([value])
    value.fill_(2.0)
    assert ring.all().tolist() == [[1.0]]
