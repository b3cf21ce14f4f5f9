import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

# Remembered before the fixture below hides it: a folder with the published files, on machines that have one.
PUBLISHED = os.environ.get("SUREFOOT_DATA")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a home of its own, so that none sees or touches the user's files."""
    for variable in ("SUREFOOT_DATA", "SUREFOOT_LIBSVM_URL", "SUREFOOT_CIFAR_URL", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


@pytest.fixture
def published() -> Path:
    if PUBLISHED is None:
        pytest.skip("SUREFOOT_DATA is not set")
    return Path(PUBLISHED)


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """Makes the system refuse to write more than so many bytes to a file."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


@dataclass
class Answer:
    body: bytes
    status: int = 200
    announced: int | None = None
    location: str = ""
    pause: float = 0.0  # seconds between pieces of a hundredth of the body
    together: threading.Barrier | None = None  # answers only when so many ask


@dataclass
class Site:
    """A web server on this machine that stands in for the sites."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            answer = state.answers.get(self.path, Answer(b"<html>not here</html>", status=404))
            if answer.together is not None:
                answer.together.wait()
            self.send_response(answer.status)
            announced = len(answer.body) if answer.announced is None else answer.announced
            if announced >= 0:
                self.send_header("Content-Length", str(announced))
            if answer.location:
                self.send_header("Location", answer.location)
            self.end_headers()
            size = len(answer.body) // 100 + 1 if answer.pause else len(answer.body) or 1
            try:
                for start in range(0, len(answer.body), size):
                    self.wfile.write(answer.body[start : start + size])
                    self.wfile.flush()
                    time.sleep(answer.pause)
            except ConnectionError:
                pass  # the client was killed, as some tests want

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Site(f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("SUREFOOT_LIBSVM_URL", state.url)
    monkeypatch.setenv("SUREFOOT_CIFAR_URL", state.url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join(60)
    server.server_close()


@pytest.fixture
def answer() -> type[Answer]:
    return Answer
