"""Log lines, as text and as JSON."""

import json

from quire import log


def test_an_event_is_one_line_with_its_fields(capsys):
    log.setup()
    log.event("task.claim", task=8123, worker="w2", nothing=None)
    line = capsys.readouterr().err
    assert line.endswith(" info task.claim task=8123 worker=w2\n")


def test_a_value_that_would_break_the_line_is_quoted(capsys):
    log.setup()
    log.event("x", why='two words\nand "more"', empty="", path="a=b")
    assert capsys.readouterr().err.split(" info ")[1] == (
        'x why="two words\\nand \\"more\\"" empty="" path="a=b"\n'
    )


def test_json_has_time_level_event_and_fields(capsys):
    log.setup(as_json=True)
    log.event("task.claim", level="warning", task=1)
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"], line["task"]) == ("warning", "task.claim", 1)
    assert line["at"].endswith("Z")


def test_events_below_the_level_are_left_out(capsys):
    log.setup(level="warning")
    log.event("quiet")
    log.event("loud", level="error")
    assert "quiet" not in (err := capsys.readouterr().err)
    assert "loud" in err


def test_trouble_names_the_error(capsys):
    log.setup()
    log.trouble("sweep.failed", ValueError("no"), worker="w1")
    assert ' error sweep.failed error="ValueError: no" worker=w1\n' in capsys.readouterr().err


def test_setting_up_twice_does_not_double_the_lines(capsys):
    log.setup()
    log.setup()
    log.event("once")
    assert capsys.readouterr().err.count("once") == 1
