"""The record that nodes write and everyone else reads, over versions of the program."""

from __future__ import annotations

import json
import math

import pytest

from gradientmail.progress import ExchangeProgress, NodeProgress

WHOLE = NodeProgress(
    "l", "a-0", time=1000.0, phase="training", claimed=2, exchange=ExchangeProgress(merged=3, versions=(7, 6))
)


def test_a_record_comes_back_as_it_was() -> None:
    assert NodeProgress.from_json(WHOLE.to_json()) == WHOLE
    alone = NodeProgress("l", "a-0")
    assert NodeProgress.from_json(alone.to_json()) == alone


def test_a_loss_that_has_diverged_is_json_that_every_reader_takes_and_comes_back() -> None:
    diverged = NodeProgress(
        "l", "a-0", loss=math.nan, held_out_loss=math.inf, exchange=ExchangeProgress(final_held_out_loss=-math.inf)
    )
    text = diverged.to_json()
    fields = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (fields["loss"], fields["held_out_loss"]) == ("NaN", "Infinity")
    assert fields["exchange"]["final_held_out_loss"] == "-Infinity"
    read = NodeProgress.from_json(text)
    assert read.loss is not None
    assert math.isnan(read.loss)
    assert read.exchange is not None
    assert (read.held_out_loss, read.exchange.final_held_out_loss) == (math.inf, -math.inf)


def test_the_loss_of_an_earlier_version_is_read_as_python_wrote_it() -> None:
    assert NodeProgress.from_json('{"learner": "l", "node": "a-0", "loss": Infinity}').loss == math.inf


@pytest.mark.parametrize("loss", ["much", True, [1]])
def test_a_loss_that_is_no_number_is_refused(loss: object) -> None:
    with pytest.raises((ValueError, TypeError), match=r"not a number|could not convert"):
        NodeProgress.from_json(json.dumps({"learner": "l", "node": "a-0", "loss": loss}))


def test_a_record_from_before_the_exchange_is_read() -> None:
    fields = json.loads(WHOLE.to_json())
    del fields["exchange"]
    read = NodeProgress.from_json(json.dumps(fields))
    assert (read.claimed, read.exchange) == (2, None)


def test_fields_of_a_newer_version_are_ignored_at_both_levels() -> None:
    fields = json.loads(WHOLE.to_json())
    fields["later"] = fields["exchange"]["later"] = 1
    assert NodeProgress.from_json(json.dumps(fields)) == WHOLE


def test_the_exchanges_fields_stay_where_readers_look_for_them() -> None:
    assert json.loads(WHOLE.to_json())["exchange"]["versions"] == [7, 6]


@pytest.mark.parametrize("text", ["[]", "1", '{"learner": "l"}', "{"])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a progress record|Expecting"):
        NodeProgress.from_json(text)


@pytest.mark.parametrize(("name", "value"), [("versions", 7), ("versions", ["7"]), ("merged", "3"), ("merged", None)])
def test_numbers_that_are_none_are_refused(name: str, value: object) -> None:
    fields = json.loads(WHOLE.to_json())
    fields["exchange"][name] = value
    with pytest.raises(TypeError):
        NodeProgress.from_json(json.dumps(fields))


def test_mean_staleness() -> None:
    assert ExchangeProgress().staleness_mean is None
    assert ExchangeProgress(adopted=4, staleness_steps_total=6).staleness_mean == 1.5
