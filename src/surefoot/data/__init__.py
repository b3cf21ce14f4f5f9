"""Data for studies: LIBSVM files read, fetched, verified and cached; synthetic regression; vowel and dna inside."""

from surefoot.data.cache import ChecksumError, DownloadError, folders
from surefoot.data.dataset import Dataset, fingerprint, train_validation_split
from surefoot.data.libsvm import read_libsvm, write_libsvm
from surefoot.data.registry import DatasetInfo, available, get, load
from surefoot.data.synthetic import LinearRegressionData, linear_regression

__all__ = [
    "ChecksumError",
    "Dataset",
    "DatasetInfo",
    "DownloadError",
    "LinearRegressionData",
    "available",
    "fingerprint",
    "folders",
    "get",
    "linear_regression",
    "load",
    "read_libsvm",
    "train_validation_split",
    "write_libsvm",
]
