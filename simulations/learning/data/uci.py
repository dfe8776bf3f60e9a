"""Three tables of the UCI repository: Adult, Bank Marketing and KDD Cup 1999.

May use numpy; must not know torch, models or the protocol.

Source: Becker and Kohavi 1996, doi:10.24432/C5XW20; Moro, Cortez and Rita 2014, Decision Support
Systems 62; KDD Cup 1999, doi:10.24432/C51C7N, attack classes with the counts of Elkan 2000,
"Results of the KDD'99 classifier learning", SIGKDD Explorations 1(2).
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence

from simulations.learning.data import catalog
from simulations.learning.data.base import DataKind, Dataset, Split
from simulations.learning.data.encoding import TableEncoder
from simulations.learning.data.errors import DataError, DataProblem
from simulations.learning.data.files import DataFile, DataFolder
from simulations.learning.data.splitting import SPLIT_SEED, TEST_FRACTION, split_stratified
from simulations.learning.data.tabular import BOUND, Schema, Table, read_table


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADULT_SCHEMA = Schema(
    columns=_words(
        "age workclass fnlwgt education education-num marital-status occupation relationship race "
        "sex capital-gain capital-loss hours-per-week native-country income"
    ),
    numeric=frozenset(
        {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
    ),
    target="income",
)

ADULT_CLASSES = {"<=50K": 0, ">50K": 1, "<=50K.": 0, ">50K.": 1}
"""The test file ends its labels in a full stop."""

BANK_SCHEMA = Schema(
    columns=_words(
        "age job marital education default balance housing loan contact day month duration "
        "campaign pdays previous poutcome y"
    ),
    numeric=frozenset({"age", "balance", "day", "duration", "campaign", "pdays", "previous"}),
    target="y",
)

BANK_CLASSES = {"no": 0, "yes": 1}

_KDD99_SYMBOLS = frozenset(
    _words("protocol_type service flag land logged_in is_host_login is_guest_login")
)
_KDD99_COLUMNS = _words(
    "duration protocol_type service flag src_bytes dst_bytes land wrong_fragment urgent hot "
    "num_failed_logins logged_in num_compromised root_shell su_attempted num_root "
    "num_file_creations num_shells num_access_files num_outbound_cmds is_host_login "
    "is_guest_login count srv_count serror_rate srv_serror_rate rerror_rate srv_rerror_rate "
    "same_srv_rate diff_srv_rate srv_diff_host_rate dst_host_count dst_host_srv_count "
    "dst_host_same_srv_rate dst_host_diff_srv_rate dst_host_same_src_port_rate "
    "dst_host_srv_diff_host_rate dst_host_serror_rate dst_host_srv_serror_rate "
    "dst_host_rerror_rate dst_host_srv_rerror_rate connection"
)

KDD99_SCHEMA = Schema(
    columns=_KDD99_COLUMNS,
    numeric=frozenset(_KDD99_COLUMNS) - _KDD99_SYMBOLS - {"connection"},
    target="connection",
)

KDD99_CLASSES = ("normal", "dos", "probe", "r2l", "u2r")
"""Labels of the task with attack classes, in order."""

_KDD99_ATTACKS = {
    "normal": "normal",
    "dos": "apache2 back land mailbomb neptune pod processtable smurf teardrop udpstorm",
    "probe": "ipsweep mscan nmap portsweep saint satan",
    "r2l": "ftp_write guess_passwd imap multihop named phf sendmail snmpgetattack "
    "snmpguess spy warezclient warezmaster worm xlock xsnoop",
    "u2r": "buffer_overflow httptunnel loadmodule perl ps rootkit sqlattack xterm",
}
"""The connections of each class, as they are labelled in the files, less the full stop."""


def load_adult(
    folder: DataFolder,  # holds ``adult/``
    *,
    complete_rows: bool = False,
    without: Sequence[str] = (),  # columns to leave out
    bound: float = BOUND,  # limit of a standardised number
) -> Dataset:
    """Load the 1994 census: does somebody earn more than 50,000 dollars (label 1) or not."""
    files = (catalog.ADULT_TRAIN, catalog.ADULT_TEST)
    tables = [read_uci(folder, file, ADULT_SCHEMA) for file in files]
    if complete_rows:
        tables = [(table.take(~table.incomplete()), subject) for table, subject in tables]
    train, test = _encoded(tables, ADULT_CLASSES, without, bound)
    return Dataset(name="adult", kind=DataKind.TABULAR, classes=2, train=train, test=test)


def load_bank(
    folder: DataFolder,  # holds ``bank/``
    *,
    without: Sequence[str] = (),
    bound: float = BOUND,  # limit of a standardised number
    test_fraction: float = TEST_FRACTION,  # share of the test split, in (0, 1); the source has none
    seed: int = SPLIT_SEED,  # of the stratified split
) -> Dataset:
    """Load a bank's calls: does the client take out a deposit (label 1) or not."""
    table, subject = read_uci(folder, catalog.BANK, BANK_SCHEMA, delimiter=";", header=True)
    labels = table.labels(BANK_CLASSES, subject)
    train, test = split_stratified(labels, test_fraction, seed)
    encoder = TableEncoder.fit(table.take(train), without=without, bound=bound)
    inputs = encoder.encode(table)
    return Dataset(
        name="bank",
        kind=DataKind.TABULAR,
        classes=2,
        train=Split(inputs[train], labels[train]),
        test=Split(inputs[test], labels[test]),
    )


def load_kdd99(
    folder: DataFolder,  # holds ``kdd99/``
    *,
    attack_classes: bool = False,  # tell four classes of attacks apart, see ``KDD99_CLASSES``
    without: Sequence[str] = (),  # columns to leave out
    bound: float = BOUND,  # limit of a standardised number
) -> Dataset:
    """Load network connections: normal (label 0) or an attack.

    Train is the 10 % file; test is ``corrected``, with attacks that training does not know.
    """
    files = (catalog.KDD99_TRAIN, catalog.KDD99_TEST)
    tables = [read_uci(folder, file, KDD99_SCHEMA) for file in files]
    classes = {
        f"{connection}.": place if attack_classes else min(place, 1)
        for place, kind in enumerate(KDD99_CLASSES)
        for connection in _KDD99_ATTACKS[kind].split()
    }
    train, test = _encoded(tables, classes, without, bound)
    count = len(KDD99_CLASSES) if attack_classes else 2
    return Dataset(name="kdd99", kind=DataKind.TABULAR, classes=count, train=train, test=test)


def _encoded(
    tables: Sequence[tuple[Table, str]],
    classes: dict[str, int],
    without: Sequence[str],
    bound: float,
) -> Iterator[Split]:
    """Yield each table as examples, encoded as the first one says."""
    encoder = TableEncoder.fit(tables[0][0], without=without, bound=bound)
    for table, subject in tables:
        yield Split(encoder.encode(table), table.labels(classes, subject))


def read_uci(
    folder: DataFolder,  # holds the file
    file: DataFile,  # one of the catalogue
    schema: Schema,  # its columns
    *,
    delimiter: str = ",",  # between fields
    header: bool = False,  # whether the first line names the columns, which is checked
) -> tuple[Table, str]:
    """Read one file as it is, for other encodings than the loaders'; and what errors call it."""
    subject = folder.subject(file)
    blob = folder.read(file)
    try:
        lines = io.TextIOWrapper(io.BytesIO(blob), encoding="ascii", newline="")
        rows = _below_header(lines, schema, subject, delimiter) if header else _uncommented(lines)
        return read_table(rows, schema, subject, delimiter=delimiter), subject
    except UnicodeDecodeError as error:
        raise DataError(subject, DataProblem.FORMAT, str(error), "ASCII text") from error


def _uncommented(lines: Iterator[str]) -> Iterator[str]:
    """Drop the remark with which Adult's test file begins."""
    return itertools.dropwhile(lambda line: line.startswith("|"), lines)


def _below_header(
    lines: Iterator[str], schema: Schema, subject: str, delimiter: str
) -> Iterator[str]:
    """Check the header and return the lines below."""
    names = next(lines, "").strip().replace('"', "").split(delimiter)
    if tuple(names) != schema.columns:
        raise DataError(
            subject, DataProblem.FORMAT, f"header {names}", delimiter.join(schema.columns)
        )
    return lines
