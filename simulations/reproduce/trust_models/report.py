"""The page and the summary of the comparison, made from its plain figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simulations.reproduce.origin import paragraph
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.text import points, section
from simulations.reproduce.trust_models.findings import by_epsilon
from simulations.reproduce.trust_models.methods import BY_NAME, METHODS, Trust
from simulations.reproduce.trust_models.plot import plot

Row = Mapping[str, Any]
Figures = Mapping[str, Any]
Rows = list[list[str]]


def page(figures: Figures) -> str:
    """Return the page as Markdown."""
    parts = [
        "# Local, distributed and central privacy on one task\n",
        paragraph(figures, "trust-models", figures["plan"]["thrifty"]),
        "## What was seen\n",
        *conclusions(figures),
        "\n![accuracy at equal epsilon, and by bytes](trust-models.png)\n",
        "## Setting\n",
        _setting(figures),
    ]
    for title, rows in (
        ("Accuracy at equal epsilon, %", epsilon_rows(figures)),
        (f"Accuracy by bytes, epsilon = {figures['plan']['byte_epsilon']:g}", byte_rows(figures)),
        ("The distributed sum with fewer clients, %", client_rows(figures)),
        ("What was chosen by trial", chosen_rows(figures)),
    ):
        parts.append("\n" + section(title, rows))
    return "\n".join(parts)


def conclusions(figures: Figures) -> list[str]:
    """Return what the figures come to, a list item each."""
    found = figures["findings"]
    return [*(_verdict(each) for each in found["by_epsilon"]), *_on_bytes(found["by_bytes"])]


def _verdict(each: Mapping[str, Any]) -> str:
    local = BY_NAME[each["best_local"]].title
    ahead = points(each["ahead"], each["ahead_half_width"])
    who = {
        "distributed": f"the distributed sum wins by {ahead} points",
        "local": f"local privacy wins: the distributed sum is ahead by {ahead} points",
        "undecided": f"undecided: the distributed sum is ahead by {ahead} points",
    }[each["winner"]]
    return (
        f"- **epsilon = {each['epsilon']:g}**: {who} ({100 * each['distributed']:.1f} % against "
        f"{100 * each['local']:.1f} % of the best local method, {local}), "
        f"{_beside(each['below_central'])} a trusted server. Local privacy needs "
        f"{_times(each['epsilon_factor'])} the epsilon to be as good; the distributed sum needs "
        f"one client where local privacy has {_number(each['clients_factor'])}."
    )


def _beside(below: float) -> str:
    return f"{abs(100 * below):.1f} points {'below' if below > 0.0 else 'above'}"


def _on_bytes(found: Mapping[str, Any]) -> list[str]:
    local, sums = found["local"], found["distributed"]
    overlap = (
        "they overlap"
        if found["overlap"]
        else "they do not overlap, so that no bytes are equal: below, only local privacy can speak"
    )
    return [
        f"- **Bytes**, epsilon = {found['epsilon']:g}: a local client sends "
        f"{_span(local)} bytes, a client of the real protocol sends and receives {_span(sums)}; "
        f"{overlap}. The best local method has "
        f"{100 * local['best']['accuracy']:.1f} % with {local['best']['bytes']:,.0f} bytes, the "
        f"best distributed sum {100 * sums['best']['accuracy']:.1f} % with "
        f"{sums['best']['bytes']:,.0f}. The cheapest distributed sum takes "
        f"{found['bytes_factor']:,.0f} times the bytes of the best local method.",
    ]


def _span(part: Mapping[str, Any]) -> str:
    return f"{part['fewest_bytes']:,.0f} to {part['most_bytes']:,.0f}"


def _setting(figures: Figures) -> str:
    plan = figures["plan"]
    parameters = figures["rows"][0]["parameters"]
    dropouts = round(plan["dropouts"] * plan["cohort"])
    colluders = round(plan["colluders"] * plan["cohort"])
    slow = ", ".join(method.title for method in METHODS if method.slow)
    return (
        f"- {plan['data']}, logistic regression, {parameters} parameters; {figures['clients']:,} "
        f"clients with one record each, {figures['tested']:,} records tested. Answering the same "
        f"every time is right in {100 * figures['majority']:.1f} %.\n"
        f"- {plan['rounds']} rounds, {plan['cohort']} clients in each; every client reports once, "
        "the gradient of its record, unless reports are the knob. Model, clients, order and "
        "cohorts of a seed are the same for all methods. Nobody is lost.\n"
        f"- **The same epsilon is not the same promise.** Local: pure, delta = 0, any two inputs, "
        "against everybody. Central and distributed: "
        f"delta = {plan['delta']:g}, a contribution against the zero vector; central against "
        "those who see the result only, as the server knows everything; distributed against a "
        f"server with {colluders} colluders in the cohort. So local privacy promises more, and "
        "what follows is what that costs.\n"
        f"- Distributed: the ideal sum, the same integers as the real protocol's; "
        f"{dropouts} of {plan['cohort']} clients may be lost, {colluders} collude, active mode, "
        "surplus noise stays. Recorded is the packed vector; roster, shares, confirmations, "
        "unmasking and signatures are added as the deployment's plan prices them, sent and "
        "received. Local and central: the report alone, without any transport. The model that "
        "every client downloads is counted nowhere.\n"
        "- sqSGD has the paper's rule for kappa and p. It rounds down, so that it may spend less "
        "than epsilon: the tables say what was spent.\n"
        f"- Clip and the server's first learning rate are chosen for each row from a small grid, "
        f"by mean accuracy over {plan['tuning_seeds']} other seeds than those evaluated "
        f"({plan['slow_tuning_seeds']} for slow methods), on the same test records. "
        "The choice is private for no method. The distributed sum takes over what central Gaussian "
        "noise found, and Hybrid what Piecewise found. Rates fall linearly to a tenth.\n"
        f"- {plan['seeds']} runs of a row, {plan['slow_seeds']} of slow methods ({slow}); "
        "intervals are of 95 % by Student's law over seeds. Differences are of pairs with one "
        "seed. A trust "
        "model is represented by its best method, chosen after the fact, which favours local "
        "privacy.\n"
        "- Factors are read off curves of measured accuracies, between two points by the "
        "logarithm. That of clients is measured the other way round: the distributed sum with a "
        "share of the clients against local privacy with all of them.\n"
    )


def epsilon_rows(figures: Figures) -> Rows:
    """Return a row for every method, a column for every epsilon."""
    plan = figures["plan"]
    epsilons = [*plan["epsilons"], *plan["more_epsilons"]]
    plain = next(row for row in figures["rows"] if row["trust"] == Trust.EVERYBODY.value)
    table = [["method", "trusts", *(f"epsilon {e:g}" for e in epsilons)]]
    table.append([plain["title"], plain["trust"], *[_accuracy(plain)] * len(epsilons)])
    for trust in (Trust.SERVER, Trust.COHORT, Trust.NOBODY):
        rows = by_epsilon(figures, trust)
        for name, knob in dict.fromkeys((row["method"], row["knob"]) for row in rows):
            mine = [row for row in rows if (row["method"], row["knob"]) == (name, knob)]
            found = {row["epsilon"]: _with_spent(row) for row in mine}
            cells = [found.get(epsilon, "-") for epsilon in epsilons]
            table.append([_named(name, knob), trust.value, *cells])
    return table


def _named(name: str, knob: float) -> str:
    method = BY_NAME[name]
    return (
        method.title
        if knob == method.knob.usual
        else f"{method.title}, {method.knob.label} {knob:g}"
    )


def _with_spent(row: Row) -> str:
    """The accuracy, and what was spent where that is clearly less than allowed."""
    spent = row["epsilon_outsider" if row["trust"] == Trust.SERVER.value else "epsilon_server"]
    less = isinstance(spent, float) and spent < 0.9 * row["epsilon"]
    return _accuracy(row) + (f" (spent {spent:.2g})" if less else "")


def byte_rows(figures: Figures) -> Rows:
    """Return a row for every method and value of its knob."""
    head = ["method", "knob", "bytes of a client", "of them recorded in a round", "accuracy, %"]
    table = [head]
    for method in METHODS:
        rows = [r for r in figures["rows"] if r["method"] == method.name and r["by_bytes"]]
        for row in sorted(rows, key=lambda row: float(row["knob"])):
            knob = f"{method.knob.label} {row['knob']:g}"
            sizes = [f"{row['bytes']:,.0f}", f"{row['recorded_bytes']:,.0f}"]
            table.append([method.title, knob, *sizes, _with_spent(row)])
    return table


def client_rows(figures: Figures) -> Rows:
    """Return a row for every epsilon, a column for every number of clients."""
    rows = [row for row in figures["rows"] if row["by_clients"]]
    counts = sorted({row["clients"] for row in rows}, reverse=True)
    table = [["epsilon", *(f"{count:,} clients" for count in counts), "best local, all clients"]]
    for each in figures["findings"]["by_epsilon"]:
        found = {r["clients"]: _accuracy(r) for r in rows if r["epsilon"] == each["epsilon"]}
        local = f"{100 * each['local']:.1f}"
        table.append([f"{each['epsilon']:g}", *(found[count] for count in counts), local])
    return table


def chosen_rows(figures: Figures) -> Rows:
    """Return the candidates that won, and whether a larger grid might have held a better one."""
    table = [["method", "epsilon", "knob", "clients", "clip", "rate", "at an edge of the grid"]]
    for row in figures["rows"]:
        epsilon = "-" if row["epsilon"] is None else f"{row['epsilon']:g}"
        figures_of = [f"{row['bound']:g}", f"{row['reach'] / row['bound']:.3g}"]
        where = [epsilon, f"{row['knob']:g}", f"{row['clients']:,}"]
        table.append([row["title"], *where, *figures_of, _edge(row)])
    return table


def _edge(row: Row) -> str:
    """Which of the two figures is the smallest or the largest that was tried."""
    bounds, reaches = ({each[place] for each in row["tried"]} for place in (0, 1))
    names = []
    for name, value, values in (("clip", row["bound"], bounds), ("rate", row["reach"], reaches)):
        # Of two values both are at an edge, and of one no other was tried: that says nothing.
        if len(values) > 2 and value in (min(values), max(values)):
            names.append(name)
    return ", ".join(names) or "-"


def _accuracy(row: Row) -> str:
    return points(row["accuracy"], row["half_width"])


def _times(factor: Mapping[str, Any]) -> str:
    return f"{_number(factor)} times"


def _number(factor: Mapping[str, Any]) -> str:
    words = {"=": "", ">": "more than ", ">=": "at least ", "<": "fewer than ", "<=": "at most "}
    return f"{words[factor['relation']]}{factor['value']:.3g}"


def _summary(figures: Figures) -> Iterator[str | Titled]:
    yield "accuracy at equal epsilon, %", epsilon_rows(figures)
    yield "accuracy by bytes", byte_rows(figures)
    yield from conclusions(figures)


REPORT = Report("trust-models", {"page": (".md", page), "plot": (".png", plot)}, _summary)
