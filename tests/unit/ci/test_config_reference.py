"""configuration.md equals the output of ci/config_reference.py."""

import re
from collections import Counter

from ci import config_reference
from pyrklog.config.broker import OPTIONS
from pyrklog.config.log_options import TOPIC_OPTIONS
from pyrklog.config.option import integer, string

PAGE = config_reference.PAGE.read_text()


def test_the_page_is_up_to_date() -> None:
    assert config_reference.page() == PAGE, "run: python ci/config_reference.py"


def test_each_option_that_acts_has_one_row() -> None:
    acting = [name for name, option in OPTIONS.items() if option.effective]
    rows = Counter(re.findall(r"^\| `([\w.]+)` \|.* (?:start|run time) \|", PAGE, re.MULTILINE))
    assert rows == Counter(acting)


def test_each_topic_option_that_acts_is_named() -> None:
    acting = {topic.option.name for topic in TOPIC_OPTIONS if topic.option.effective}
    assert acting <= set(re.findall(r"`([\w.]+)` \|", PAGE))


def test_option_with_its_own_rule_documents_valid_values() -> None:
    options = [*OPTIONS.values(), *(topic.option for topic in TOPIC_OPTIONS)]
    assert [option.name for option in options if option.check and not option.check_allows] == []


def test_valid_values_are_those_of_the_bounds_or_choices() -> None:
    assert integer("a", 1, "").valid_values == ""
    assert integer("a", 1, "", minimum=1).valid_values == "≥ 1"
    assert integer("a", 1, "", minimum=1, maximum=9).valid_values == "1 to 9"
    assert string("a", "x", "", choices=("x", "y")).valid_values == "x, y"
