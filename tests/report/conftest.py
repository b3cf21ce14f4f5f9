"""Small studies, and pages of them."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

from surefoot import report
from surefoot.report._payload import payload
from surefoot.runs import Store
from surefoot.study import Method, Result, Study
from surefoot.theory import models

HOSTILE = "<script>window.broken = 1</script>"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def result(folder):
    """Linear regression in a file, with what only the problem knows; SGD diverges at the largest rates."""
    study = Study(
        "linear-regression",
        methods=["sgd", "sps", "ngn", "spp"],
        lrs=np.logspace(-3, 2, 11),
        seeds=3,
        epochs=10,
        batch_size=5,
        distance=1.0,
        problem_options={"noise": 0.5},
    )
    result = study.run(folder / "study.db")
    report.prepare(result)
    return result


@pytest.fixture(scope="session")
def validated(folder):
    """Logistic regression, which has validation rows, with more steps than a line has points."""
    study = Study(
        "logistic-regression",
        data="vowel",
        methods=["sgd", "ngn"],
        lrs=[0.1, 1.0, 10.0],
        seeds=2,
        epochs=12,
        batch_size=16,
    )
    return study.run()


@pytest.fixture(scope="session")
def hostile_title():
    """Ends whatever it stands in, or looks like a place of the template."""
    return '</script><img src=x onerror="window.broken = 1">{{script}}" onload="window.broken = 1'


@pytest.fixture(scope="session")
def hostile():
    """A study whose methods are called like program text."""
    methods = [Method(HOSTILE, models.Linear()), Method("</script>" + "w" * 60, models.Truncated())]
    return Study("linear-regression", methods=methods, lrs=[0.01, 0.1], seeds=2, epochs=2, batch_size=5).run()


@pytest.fixture(scope="session")
def exploded(folder):
    """A study without a run that did not diverge."""
    return Study(
        "linear-regression", methods=["sgd"], lrs=[1e3, 1e5], seeds=2, epochs=20, batch_size=5, distance=1.0
    ).run(folder / "exploded.db")


@pytest.fixture
def interrupted(tmp_path):
    """A study of which the runs at one rate are missing."""
    options = {"methods": ["sgd", "sps"], "seeds": 2, "epochs": 2, "batch_size": 5}
    Study("linear-regression", lrs=[0.01], **options).run(tmp_path / "s.db")
    begun = Study("linear-regression", lrs=[0.01, 0.1], **options)
    with Store.write(tmp_path / "s.db") as store:
        store.register(begun._context(), begun._settings())
    return Result.load(tmp_path / "s.db")


@pytest.fixture(scope="module")
def opened(browser):
    """Opens a file with the network off, and checks at the end that the page was quiet and asked for nothing."""

    @contextmanager
    def open_page(path, **options):
        context = browser.new_context(offline=True, accept_downloads=True, **options)
        try:
            page = context.new_page()
            complaints, asked = [], []
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto(path.as_uri())
            page.wait_for_selector("#study:not([hidden])")
            yield page
            assert complaints == []
            assert [url for url in asked if not url.startswith(("file://", "blob:"))] == []
        finally:
            context.close()

    return open_page


@pytest.fixture(scope="module")
def page(opened, result, folder):
    """The page of linear regression, written from its file."""
    with opened(report.from_store(folder / "study.db", folder / "study.html")) as page:
        yield page


@pytest.fixture(autouse=True)
def _as_opened(request):
    """Every test on the shared page begins where it opens."""
    if "page" in request.fixturenames:
        page = request.getfixturevalue("page")
        page.reload()
        page.wait_for_selector("#study:not([hidden])")


@pytest.fixture(scope="session")
def order(result):
    """Positions of the methods of linear regression in the order of its page: the widest window first."""
    names = [method["name"] for method in json.loads(payload(result, "study"))["methods"]]
    return [result.algorithms.index(name) for name in names]
