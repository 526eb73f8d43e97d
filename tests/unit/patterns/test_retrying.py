import logging

import pytest

from gradientmail.mailbox import MailboxDenied, MailboxUnavailable
from gradientmail.patterns.retrying import Patience, Stopped


class Weather:
    """A clock that moves only by pauses, and a store that is down for some calls."""

    def __init__(self, down: int, stop_after: int | None = None) -> None:
        self.down = down
        self.calls = 0
        self.now = 0.0
        self.pauses: list[float] = []
        self.stop_after = stop_after

    def request(self) -> str:
        self.calls += 1
        if self.calls <= self.down:
            raise MailboxUnavailable("no answer")
        return "answer"

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return self.stop_after is not None and len(self.pauses) >= self.stop_after

    def patience(self, limit: float) -> Patience:
        return Patience(limit, self.pause, clock=lambda: self.now, jitter=lambda: 1.0)


def test_repeats_with_doubling_pauses_of_at_most_five_seconds() -> None:
    weather = Weather(down=8)
    assert weather.patience(100.0).call(weather.request) == "answer"
    assert weather.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_gives_up_once_the_limit_is_reached() -> None:
    weather = Weather(down=1000)
    with pytest.raises(MailboxUnavailable, match=r"not answered for 3 s \(the limit is 3 s\); last error: no answer"):
        weather.patience(3.0).call(weather.request)
    assert sum(weather.pauses) == pytest.approx(3.0)


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        weather = Weather(down=4)
        weather.patience(100.0).call(weather.request)
    assert [record.getMessage() for record in caplog.records] == [
        "the store does not answer, trying again for up to 100 s: no answer",
        "the store answers again after 1.5 s",
    ]


def test_each_outage_has_the_whole_limit() -> None:
    weather = Weather(down=5)
    patience = weather.patience(4.0)
    assert patience.call(weather.request) == "answer"
    weather.calls = 0
    assert patience.call(weather.request) == "answer"


def test_a_stop_ends_the_wait() -> None:
    weather = Weather(down=1000, stop_after=2)
    with pytest.raises(Stopped):
        weather.patience(100.0).call(weather.request)
    assert weather.calls == 2


def test_other_errors_come_at_once() -> None:
    weather = Weather(down=0)

    def denied() -> None:
        raise MailboxDenied("no")

    with pytest.raises(MailboxDenied):
        weather.patience(100.0).call(denied)
    assert weather.pauses == []


def test_no_patience_at_all_means_one_attempt() -> None:
    weather = Weather(down=1)
    with pytest.raises(MailboxUnavailable):
        weather.patience(0.0).call(weather.request)
    assert weather.calls == 1
