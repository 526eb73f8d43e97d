from hypothesis import given
from hypothesis import strategies as some

from gradientmail.patterns.ledger import Ledger


def test_follows_the_order_of_the_mapping() -> None:
    ledger = Ledger(["b", "a", "c"])
    assert ledger.candidate() == "b"
    ledger.learn("b")
    assert ledger.candidate() == "a"
    ledger.learn("c")
    ledger.learn("a")
    assert ledger.candidate() is None


def test_lists_after_the_smallest_unit_not_known_to_be_claimed() -> None:
    ledger = Ledger(["a", "b", "c", "d"])
    assert ledger.listing_start() == ""
    ledger.learn("b")
    assert ledger.listing_start() == ""
    ledger.learn("a")
    assert ledger.listing_start() == "b"
    ledger.learn("d")
    ledger.learn("c")
    assert ledger.listing_start() == "d"


def test_ignores_claims_on_units_of_another_mapping() -> None:
    ledger = Ledger(["a"])
    ledger.learn("z")
    assert ledger.candidate() == "a"


def test_predecessor_is_the_identifier_before_in_byte_order() -> None:
    ledger = Ledger(["b", "ä", "a", "z"])
    assert [ledger.predecessor(unit) for unit in ("a", "b", "z", "ä")] == ["", "a", "b", "z"]


@given(some.lists(some.text("abcä0", min_size=1, max_size=4), unique=True), some.randoms(use_true_random=False))
def test_a_listing_covers_every_unit_not_known_to_be_claimed(units: list[str], random: object) -> None:
    ledger = Ledger(units)
    known: set[str] = set()
    order = list(units)
    random.shuffle(order)  # type: ignore[attr-defined]
    for unit in order:
        start = ledger.listing_start()
        assert all(open_unit.encode() > start.encode() for open_unit in set(units) - known)
        assert ledger.candidate() == next(open_unit for open_unit in units if open_unit not in known)
        ledger.learn(unit)
        known.add(unit)
