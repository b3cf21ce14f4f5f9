"""What surefoot knows about the LIBSVM collection: short names, files, sizes, and the checksums it can vouch for."""

from dataclasses import dataclass
from typing import Literal, get_args

Task = Literal["classification", "regression"]
Split = Literal["train", "test"]

# Folders of the LIBSVM site that hold one label a row, and what the label means there.
FOLDERS: dict[str, Task] = {"binary": "classification", "multiclass": "classification", "regression": "regression"}

PINNED_SHA256 = {
    "dna.scale": "03d39477c5e48415e9cd18e006efc8f7a3b5c3deaee8289a72511c35070e3cfe",
    "dna.scale.t": "d2eeed170e4e38ae2aba6aa4cd27a8ca4ecceb01a7751e8e509bb4e1a6bcef39",
    "vowel.scale": "89ecbd4590cabc23b001cbd2d90128efe3c8ad02540ce1a08ef367b98d765585",
    "vowel.scale.t": "b96670a92b4d4d711db91ecc6c89bf7d75347a1ef1f196f5876575f1c5f9a240",
}
"""SHA-256 of whole files of the LIBSVM site, by file name."""

BUNDLED = ("vowel", "dna")
"""Names whose files are part of the package."""


def check_split(split: str) -> None:
    """Refuse a part that there is not."""
    if split not in get_args(Split):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and its size.

    ``folder`` is empty for a file of the user's own, which no site has; sizes are None where nobody has said them.
    """

    name: str
    folder: str
    train: str
    test: str | None = None
    rows: int | None = None
    features: int | None = None
    classes: int | None = None

    @property
    def task(self) -> Task | None:
        """What the labels mean, None if the folder does not tell."""
        return FOLDERS.get(self.folder)

    def file(self, split: Split) -> str:
        """Return the file name of one part; ValueError if there is no such part."""
        check_split(split)
        if split == "train":
            return self.train
        if self.test is None:
            raise ValueError(f"split must be 'train', got 'test': the data set {self.name!r} has no test file")
        return self.test


# Columns: name, folder, training file, test file, training rows, features, classes.
# A short name means the scaled file where there is one, as in the paper's experiments.
_SOURCES = [
    *(
        Source(f"a{i}a", "binary", f"a{i}a", f"a{i}a.t", rows, 123, 2)
        for i, rows in enumerate([1605, 2265, 3185, 4781, 6414, 11220, 16100, 22696, 32561], start=1)
    ),
    Source("australian", "binary", "australian_scale", None, 690, 14, 2),
    Source("breast-cancer", "binary", "breast-cancer_scale", None, 683, 10, 2),
    Source("cod-rna", "binary", "cod-rna", "cod-rna.t", 59535, 8, 2),
    Source("covtype.binary", "binary", "covtype.libsvm.binary.scale.bz2", None, 581012, 54, 2),
    Source("diabetes", "binary", "diabetes_scale", None, 768, 8, 2),
    Source("fourclass", "binary", "fourclass_scale", None, 862, 2, 2),
    Source("german.numer", "binary", "german.numer_scale", None, 1000, 24, 2),
    Source("gisette", "binary", "gisette_scale.bz2", "gisette_scale.t.bz2", 6000, 5000, 2),
    Source("heart", "binary", "heart_scale", None, 270, 13, 2),
    Source("ijcnn1", "binary", "ijcnn1.bz2", "ijcnn1.t.bz2", 49990, 22, 2),
    Source("ionosphere", "binary", "ionosphere_scale", None, 351, 34, 2),
    Source("mushrooms", "binary", "mushrooms", None, 8124, 112, 2),
    Source("phishing", "binary", "phishing", None, 11055, 68, 2),
    Source("rcv1.binary", "binary", "rcv1_train.binary.bz2", "rcv1_test.binary.bz2", 20242, 47236, 2),
    Source("real-sim", "binary", "real-sim.bz2", None, 72309, 20958, 2),
    Source("skin_nonskin", "binary", "skin_nonskin", None, 245057, 3, 2),
    Source("sonar", "binary", "sonar_scale", None, 208, 60, 2),
    Source("splice", "binary", "splice", "splice.t", 1000, 60, 2),
    Source("svmguide1", "binary", "svmguide1", "svmguide1.t", 3089, 4, 2),
    *(
        Source(f"w{i}a", "binary", f"w{i}a", f"w{i}a.t", rows, 300, 2)
        for i, rows in enumerate([2477, 3470, 4912, 7366, 9888, 17188, 24692, 49749], start=1)
    ),
    Source("connect-4", "multiclass", "connect-4", None, 67557, 126, 3),
    Source("covtype", "multiclass", "covtype.scale01.bz2", None, 581012, 54, 7),
    Source("dna", "multiclass", "dna.scale", "dna.scale.t", 2000, 180, 3),
    Source("glass", "multiclass", "glass.scale", None, 214, 9, 6),
    Source("iris", "multiclass", "iris.scale", None, 150, 4, 3),
    Source("letter", "multiclass", "letter.scale", "letter.scale.t", 15000, 16, 26),
    Source("mnist", "multiclass", "mnist.scale.bz2", "mnist.scale.t.bz2", 60000, 780, 10),
    Source("pendigits", "multiclass", "pendigits", "pendigits.t", 7494, 16, 10),
    Source("protein", "multiclass", "protein.bz2", "protein.t.bz2", 17766, 357, 3),
    Source("satimage", "multiclass", "satimage.scale", "satimage.scale.t", 4435, 36, 6),
    Source("segment", "multiclass", "segment.scale", None, 2310, 19, 7),
    Source("shuttle", "multiclass", "shuttle.scale", "shuttle.scale.t", 43500, 9, 7),
    Source("usps", "multiclass", "usps.bz2", "usps.t.bz2", 7291, 256, 10),
    Source("vehicle", "multiclass", "vehicle.scale", None, 846, 18, 4),
    Source("vowel", "multiclass", "vowel.scale", "vowel.scale.t", 528, 10, 11),
    Source("wine", "multiclass", "wine.scale", None, 178, 13, 3),
    Source("abalone", "regression", "abalone_scale", None, 4177, 8),
    Source("bodyfat", "regression", "bodyfat_scale", None, 252, 14),
    Source("cadata", "regression", "cadata", None, 20640, 8),
    Source("cpusmall", "regression", "cpusmall_scale", None, 8192, 12),
    Source("eunite2001", "regression", "eunite2001", "eunite2001.t", 336, 16),
    Source("housing", "regression", "housing_scale", None, 506, 13),
    Source("mg", "regression", "mg_scale", None, 1385, 6),
    Source("mpg", "regression", "mpg_scale", None, 392, 7),
    Source("pyrim", "regression", "pyrim_scale", None, 74, 27),
    Source("space_ga", "regression", "space_ga_scale", None, 3107, 6),
    Source("triazines", "regression", "triazines_scale", None, 186, 60),
    Source("YearPredictionMSD", "regression", "YearPredictionMSD.bz2", "YearPredictionMSD.t.bz2", 463715, 90),
]

CATALOG = {source.name: source for source in _SOURCES}
"""The data sets that have a short name."""
