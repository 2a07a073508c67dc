"""`quire tenant`: limits of tenants, and what they use of them."""

from typing import Annotated, Any

from quire import format
from quire.cli import console, options, session
from quire.control import tenants

app = options.Group("List tenants; set their limits.", no_args_is_help=True, cls=options.OfNames)

Name = Annotated[str, options.argument("NAME", "Name of the tenant.")]
_NONE = "0: no limit."
MaxBytes = Annotated[int | None, options.option("N", f"Bytes of stored files. {_NONE}")]
MaxDocuments = Annotated[int | None, options.option("N", f"Documents. {_NONE}")]
MaxPages = Annotated[
    int | None,
    options.option("N", f"Pages of documents; no document begins past it. {_NONE}"),
]
MaxJobs = Annotated[int | None, options.option("N", f"Unfinished jobs. {_NONE}")]
MaxRequests = Annotated[
    int | None, options.option("N", f"Requests to the API in a day (UTC). {_NONE}")
]


@app.command("list")
def listing(json: options.Json = False) -> None:
    """List tenants with their limits and what they use."""
    with session.open_app() as opened:
        found = tenants.listed(opened.caller)
    console.listing(
        found,
        lambda each: {
            "TENANT": format.one_line(each["name"], 60),
            **{what.upper(): _use(each, what) for what in each["limits"]},
        },
        right=tuple(what.upper() for what in tenants.LIMITS),
        json=json,
        empty="No tenants yet. A tenant begins with its first job.",
    )


@app.command()
def show(name: Name, json: options.Json = False) -> None:
    """Show the limits of a tenant and what it uses."""
    with session.open_app() as opened:
        found = tenants.shown(opened.caller, name)
    console.answer(found, _said(found), json=json)


@app.command("set")
def set_limits(
    name: Name,
    max_bytes: MaxBytes = None,
    max_documents: MaxDocuments = None,
    max_pages: MaxPages = None,
    max_jobs: MaxJobs = None,
    max_requests: MaxRequests = None,
    json: options.Json = False,
) -> None:
    """Set limits of a tenant. Options left out do not change."""
    limits = {
        "bytes": max_bytes, "documents": max_documents, "pages": max_pages, "jobs": max_jobs,
        "requests": max_requests,
    }  # fmt: skip
    with session.create_app() as opened:
        changed = tenants.change(opened.caller, name, limits)
    console.answer(changed, _said(changed), json=json)


def _said(one: dict[str, Any]) -> str:
    told = ", ".join(f"{what} {_use(one, what)}" for what in one["limits"])
    return f"tenant {format.one_line(one['name'], 60)}: {told}."


def _use(one: dict[str, Any], what: str) -> str:
    most = one["limits"][what]
    return f"{one['used'][what]:,} of {most:,}" if most is not None else f"{one['used'][what]:,}"
