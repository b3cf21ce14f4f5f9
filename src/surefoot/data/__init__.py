"""Data for studies: vowel, dna, handwritten digits and some Shakespeare come with the package; CIFAR-10 is downloaded.

LIBSVM files and texts of one's own are read; linear regression is drawn.
"""

from surefoot.data.cache import DownloadError, folders
from surefoot.data.cifar import cifar10
from surefoot.data.dataset import Dataset, train_validation_split
from surefoot.data.images import Images, digits
from surefoot.data.libsvm import read_libsvm
from surefoot.data.registry import DatasetInfo, available, get, load
from surefoot.data.synthetic import LinearRegressionData, linear_regression
from surefoot.data.text import Characters, characters

__all__ = [
    "Characters",
    "Dataset",
    "DatasetInfo",
    "DownloadError",
    "Images",
    "LinearRegressionData",
    "available",
    "characters",
    "cifar10",
    "digits",
    "folders",
    "get",
    "linear_regression",
    "load",
    "read_libsvm",
    "train_validation_split",
]
