import pytest

from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.log_verify import DIFFERS, EQUAL, UNKNOWN, Since, exit_of, parse_since

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("0", Since(0, False)),
        ("1500", Since(1500, False)),
        ("@1500", Since(1500, True)),
        ("@-90m", Since(NOW_MS - 90 * 60_000, True)),
        ("-90m", Since(NOW_MS - 90 * 60_000, True)),
        ("2024-01-31", Since(1_706_659_200_000, True)),
        ("@2024-01-31T12:00:00Z", Since(1_706_702_400_000, True)),
    ],
)
def test_since_is_an_offset_or_a_time(text: str, since: Since) -> None:
    assert parse_since(text, NOW_MS) == since


@pytest.mark.parametrize("text", ["", "-5", "@", "soon", "1.5"])
def test_since_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_since(text, NOW_MS)
    assert caught.value.code is Exit.USAGE


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], Exit.OK),
        ([EQUAL, EQUAL], Exit.OK),
        ([EQUAL, DIFFERS, UNKNOWN], Exit.DIFFERS),
        ([EQUAL, UNKNOWN], Exit.PARTIAL),
        ([UNKNOWN, UNKNOWN], Exit.UNREACHABLE),
    ],
)
def test_the_exit_code_is_that_of_the_worst(statuses: list[str], code: Exit) -> None:
    assert exit_of(statuses) is code
