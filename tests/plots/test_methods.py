"""One look a method: names and colours agree with the package, and everybody can tell them apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from surefoot.plots import label_of, look, looks
from surefoot.plots.methods import MARKERS, PALETTE, known

VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What is left of linear RGB for each kind of colour vision (Machado, Oliveira and Fernandes 2009, full severity)."""

LINEAR_TO_CONES = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                   [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
CONES_TO_LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip

APART = 0.1
"""Smallest distance in OKLab; 0.02 is where people begin to see a difference side by side."""


def linear(colours):
    values = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb):
    return np.cbrt(np.clip(rgb, 0, 1) @ np.transpose(LINEAR_TO_CONES)) @ np.transpose(CONES_TO_LAB)


def distances(colours, vision):
    seen = oklab(np.clip(linear(colours) @ np.transpose(VISION[vision]), 0, 1))
    return {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in itertools.combinations(range(len(seen)), 2)}


@pytest.mark.parametrize("vision", VISION)
def test_colours_stay_apart_for_every_kind_of_colour_vision(vision):
    assert min(distances(PALETTE, vision).values()) > APART


def test_the_test_would_see_a_bad_pair():
    assert min(distances(["#009e73", "#cc79a7"], "usual").values()) > APART
    assert min(distances(["#009e73", "#cc79a7"], "deuteranopia").values()) < APART


def test_methods_of_the_paper_differ_without_colours():
    grey = sorted(oklab(linear([look(name).colour for name in ("sgd", "sps", "ngn", "spp", "log-ngn")]))[:, 0])
    assert min(np.diff(grey)) > 0.04
    assert len({look(name).marker for name in ("sgd", "sps", "ngn", "spp", "log-ngn")}) == 5


def test_every_colour_is_strong_enough_for_a_line_on_white():
    luminance = linear(PALETTE) @ [0.2126, 0.7152, 0.0722]
    assert (1.05 / (luminance + 0.05)).min() > 2.2


def test_labels_are_the_names_of_the_classes():
    import surefoot.optim as sfo
    from surefoot.runs._methods import OPTIMIZERS as NAMED

    for name in known():
        place = NAMED.get(name, "surefoot.optim:")
        if place.startswith("surefoot.optim:") and name not in ("power", "sgd+warmup"):
            assert hasattr(sfo, label_of(name))


def test_names_are_found_from_labels():
    for name in known():
        if "+" not in name and name not in ("sgd-momentum", "power"):
            assert label_of(name).lower() == name.replace("-", "")


def test_a_method_of_ones_own_has_a_strong_colour_and_no_grey():
    assert look("mine").colour in PALETTE
    assert look("mine") == look("mine")


@pytest.mark.parametrize(
    "names",
    [
        ["sgd", "sps", "ngn", "spp", "log-ngn", "power(p=0.25)", "sgd+warmup", "mine"],
        ["adam", "adamw", "sgd", "sgd-momentum", "muon"],
        ["sps(lower_bound=-2)", "sps", "sps(lower_bound=level)", "momo", "surefoot"],
        ["mine", "yours", "sgd"],
    ],
)
def test_no_two_methods_of_a_picture_look_alike(names):
    found = looks(names)
    assert list(found) == names
    assert len({each.colour for each in found.values()}) == len(names)
    assert len({each.marker for each in found.values()}) == len(names)


def test_the_plain_method_keeps_its_own_look():
    found = looks(["sps(lower_bound=-2)", "mine", "sps"])
    assert found["sps"] == look("sps")
    assert found["sps(lower_bound=-2)"].colour != look("sps").colour


def test_more_methods_than_colours_differ_in_their_lines():
    found = looks([f"m{k}" for k in range(3 * len(PALETTE))])
    assert len({(each.colour, each.line) for each in found.values()}) == 3 * len(PALETTE)
    assert {each.marker for each in found.values()} == set(MARKERS)
