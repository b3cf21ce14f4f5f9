"""Data for studies: LIBSVM files, CIFAR-10 and texts, read, fetched, verified and cached; synthetic regression.

Inside the package: vowel, dna, handwritten digits, and some Shakespeare.
"""

from surefoot.data.cache import ChecksumError, DownloadError, folders
from surefoot.data.cifar import cifar10
from surefoot.data.dataset import Dataset, fingerprint, train_validation_split
from surefoot.data.images import Images
from surefoot.data.libsvm import read_libsvm, write_libsvm
from surefoot.data.optdigits import digits
from surefoot.data.registry import DatasetInfo, available, get, load
from surefoot.data.synthetic import LinearRegressionData, linear_regression
from surefoot.data.text import Characters, characters

__all__ = [
    "Characters",
    "ChecksumError",
    "Dataset",
    "DatasetInfo",
    "DownloadError",
    "Images",
    "LinearRegressionData",
    "available",
    "characters",
    "cifar10",
    "digits",
    "fingerprint",
    "folders",
    "get",
    "linear_regression",
    "load",
    "read_libsvm",
    "train_validation_split",
    "write_libsvm",
]
