"""A pytest plug-in: `--ssedb-bonus package.module:Class` adds that bonus's checks as tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ssedb.testing.subject import Subject

# Pytest loads this module in every project where ssedb is installed: torch waits for a bonus.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --ssedb-bonus."""
    parser.getgroup("ssedb").addoption(
        "--ssedb-bonus",
        action="append",
        default=[],
        metavar="NAME",
        help="check this bonus of ssedb, or package.module:Class, against the contract; "
        "may be given more than once",
    )


@pytest.hookimpl(tryfirst=True)  # before -k and -m choose among the items
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the checks of each bonus that --ssedb-bonus names."""
    for name in config.getoption("--ssedb-bonus"):
        checks = BonusChecks.from_parent(session, name=name, nodeid=f"ssedb::{name}")
        items.extend(session.genitems(checks))


class BonusChecks(pytest.Collector):
    """Checks of one bonus."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        from ssedb.errors import ConfigError
        from ssedb.options import options_class
        from ssedb.testing.subject import Subject

        here = str(self.config.invocation_params.dir)
        if here not in sys.path:  # where `ssedb check` looks too
            sys.path.append(here)
        try:
            options_class(self.name)
        except ConfigError as error:
            raise pytest.UsageError(f"--ssedb-bonus: {error}") from None
        self.subject = Subject(self.name)

    def collect(self) -> Iterator[BonusCheck]:
        """Yield a test for each check."""
        from ssedb.testing.conformance import CHECKS

        for check in CHECKS:
            about: dict[str, Any] = dict(name=check.__name__, check=check, subject=self.subject)
            yield BonusCheck.from_parent(self, **about)


class BonusCheck(pytest.Item):
    """One check of one bonus."""

    def __init__(self, *, check: Callable[[Subject], None], subject: Subject, **rest: Any) -> None:
        super().__init__(**rest)
        self.check, self.subject = check, subject

    def runtest(self) -> None:
        """Run the check."""
        from ssedb.testing.subject import Skip, seeded

        try:
            with seeded(self.subject.device):
                self.check(self.subject)
        except Skip as skip:
            pytest.skip(str(skip))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any
    ) -> Any:
        """Return what the bonus does wrong, or the traceback of an error of its own."""
        from ssedb.testing.conformance import sentence
        from ssedb.testing.subject import Failure

        # Of an error of the bonus itself the traceback says where.
        if not isinstance(excinfo.value, Failure):
            excinfo.traceback = excinfo.traceback.cut(path=__file__)  # without pytest's own part
            return super().repr_failure(excinfo, *args, **kwargs)
        return f"{excinfo.value}\n  wanted: {sentence(self.check)}"

    def reportinfo(self) -> tuple[str, None, str]:
        """Return the name of the test."""
        return "ssedb", None, f"{self.subject.name}: {self.name}"
