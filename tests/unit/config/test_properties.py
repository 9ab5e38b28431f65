import pytest

from pyrklog.config.properties import PropertiesError, Property, parse_properties


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b ", "a", "b "),
        ("  a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\t=\tb=c", "a", "b=c"),
        ("a", "a", ""),
        ("a=", "a", ""),
        (r"a\=b=c", "a=b", "c"),
        (r"a=x\ty\n\\", "a", "x\ty\n\\"),
        (r"a=\u0041\q", "a", "Aq"),
        ("a=b#no comment", "a", "b#no comment"),
        ("a=1,\\\n    2,\\\n    3", "a", "1,2,3"),
        ("a=b\\\\", "a", "b\\"),
        ("a=b\\", "a", "b"),
        ("a=ü", "a", "ü"),
    ],
)
def test_property_line_is_parsed(text: str, key: str, value: str) -> None:
    assert parse_properties(text) == [Property(key, value, 1)]


def test_comments_blank_lines_and_line_numbers() -> None:
    text = "# one\n\n! two\r\n   \na=1\r\nb=2\\\n  3\n#c=4\nd=5"
    assert parse_properties(text) == [
        Property("a", "1", 5),
        Property("b", "23", 6),
        Property("d", "5", 9),
    ]


def test_a_bad_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties("a=1\nb=\\u12x4")
