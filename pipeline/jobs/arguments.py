"""Options that jobs share: where the change log comes from, how Spark runs, where the answer goes.

Decides names, defaults and what cannot be combined. All refusals are made before Spark is started.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipeline.errors import OptionError
from quorum.cli.commands.status import DEFAULT_ADMIN, add_tls_options
from quorum.config.dialling import DEFAULT_ADMIN_URLS

FORMATS: Final = ("table", "json", "csv", "parquet")
ROWS_DEFAULT: Final = 40
ROWS_MAX: Final = 100_000
EVERY_S_DEFAULT: Final = 10

#: A place in the history: a zxid, or a time.
Moment = int | datetime


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every job has: Spark's master, and where the answer goes."""
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: local[*])")
    parser.add_argument("--format", choices=FORMATS, default="table", help="of the answer (default: table)")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write the answer there, as Spark writes it")
    parser.add_argument(
        "--rows",
        metavar="N",
        type=_rows,
        default=ROWS_DEFAULT,
        help=f"rows of the table that are printed (default: {ROWS_DEFAULT})",
    )


def add_picture_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --picture, for a job that can draw."""
    parser.add_argument("--picture", metavar="FILE.html", type=Path, help="draw a picture as one HTML file")


def add_changelog_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the change log comes from, and which part of it counts."""
    parser.add_argument(
        "--admin",
        metavar="URL,…",
        default=",".join(DEFAULT_ADMIN_URLS),
        help=f"admin ports of nodes, any of which is asked (default: {DEFAULT_ADMIN})",
    )
    add_tls_options(parser)
    # The token of `quorate --token-file`, which may also follow the job's name.
    parser.add_argument(
        "--token-file", metavar="FILE", default=argparse.SUPPRESS, help="token of the admin ports"
    )
    parser.add_argument(
        "--input",
        metavar="PATH",
        help="recorded history: JSON lines of `quorate changelog dump --json`, or parquet of rows",
    )
    parser.add_argument(
        "--from", dest="begin", metavar="ZXID|TIME", type=moment, help="the first transaction, inclusive"
    )
    parser.add_argument(
        "--until", dest="end", metavar="ZXID|TIME", type=moment, help="the last transaction, inclusive"
    )


def add_follow_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --follow, for a job that can answer again."""
    parser.add_argument(
        "--follow", action="store_true", help="go on with what is committed, until it is interrupted"
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", type=Path, help="where --follow keeps what it has read, to resume"
    )
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=_seconds,
        default=EVERY_S_DEFAULT,
        help=f"between two answers of --follow (default: {EVERY_S_DEFAULT})",
    )


def check_output(arguments: argparse.Namespace) -> None:
    """Refuse an output that cannot be made."""
    if arguments.out is not None and arguments.format == "table":
        raise OptionError("--out", str(arguments.out), "a table is printed", "add --format json|csv|parquet")
    if arguments.out is None and arguments.format == "parquet":
        raise OptionError("--format", "parquet", "is not for a terminal", "name a directory with --out DIR")
    if arguments.out is not None and arguments.out.exists():
        raise OptionError("--out", str(arguments.out), "exists", "name a directory that does not exist yet")
    picture = getattr(arguments, "picture", None)
    if picture is not None and (picture.suffix != ".html" or not picture.parent.is_dir()):
        raise OptionError(
            "--picture", str(picture), "is not an HTML file in an existing directory", "name DIR/FILE.html"
        )


def check_changelog(arguments: argparse.Namespace) -> None:
    """Refuse a part of the change log that ends before it begins."""
    if type(arguments.begin) is type(arguments.end) is int and arguments.begin > arguments.end:
        raise OptionError("--from", arguments.begin, "is behind --until", "name a smaller zxid")


def check_follow(arguments: argparse.Namespace) -> None:
    """Refuse options that do not fit together with --follow."""
    if arguments.follow and arguments.input is not None:
        raise OptionError(
            "--follow", True, "a recorded history does not grow", "leave out --input or --follow"
        )
    if arguments.follow and arguments.end is not None:
        raise OptionError(
            "--until", str(arguments.end), "--follow has no end", "leave out --until or --follow"
        )
    if arguments.follow and arguments.out is not None:
        raise OptionError("--out", str(arguments.out), "--follow answers again and again", "leave out --out")
    if arguments.checkpoint is not None and not arguments.follow:
        raise OptionError("--checkpoint", str(arguments.checkpoint), "only --follow resumes", "add --follow")


def moment(text: str) -> Moment:
    """Read a zxid (decimal or 0x…) or a time (ISO 8601, UTC unless it says otherwise)."""
    try:
        zxid = int(text, 0)
    except ValueError:
        pass
    else:
        if 0 <= zxid < 1 << 63:
            return zxid
        raise argparse.ArgumentTypeError(f"{text!r} is not a zxid: name one from 0 to 2^63 - 1")
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a zxid nor a time: write 1234 or 2026-11-25T10:00:00"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _rows(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= ROWS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows from 1 to {ROWS_MAX}")
    return int(text)


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 3600")
    return int(text)
