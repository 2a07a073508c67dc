"""The authorisation matrix: every route, API and dashboard, as every role and as a stranger; every
job kind as every role; every sort of source as every role, granted to them, to others, to nobody.

A route, kind or sort of source that is not in its table fails the test, so that nobody adds one
without saying who may use it. Clients of the whole application go by tokens: the gate is the real
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from quire.control import access, corpora, sources
from quire.model import payloads, places
from quire.model.contracts import OWN_SCHEMES
from quire.web import jobs as web_jobs
from quire.web import overview, server
from tests import signing
from tests.api.house import House, sailing_book

#: Who may use a route; another tenant's admin is none of these.
PUBLIC, OPERATE, ADMIN = "public", "instance-admin", "admin instance-admin"
WRITE, READ = f"member {ADMIN}", f"viewer member {ADMIN}"
#: Only whose it is, and no other role: for an admin too it is not there. See test_account.
OWNER = "owner"
#: What an admin of another tenant gets where only an instance admin is let in.
FORBIDDEN = 403
ROLES = ("viewer", "member", "admin", "instance-admin")
#: What an admin of another tenant gets: nothing there, or only what is their own.
GONE, OWN = 404, 0


class Row(NamedTuple):
    """Who may use a route, and an example of its use."""

    may: str
    other: int = OWN
    path: str = ""  # where the route's own path needs other values
    send: dict[str, Any] | None = None
    is_stream: bool = False


def json(**body: Any) -> dict[str, Any]:
    return {"json": body}


def form(**fields: Any) -> dict[str, Any]:
    return {"data": fields}


TABLE: dict[str, Row] = {
    "GET /api/openapi.json": Row(PUBLIC),
    "GET /healthz": Row(PUBLIC),
    "GET /readyz": Row(PUBLIC),
    "GET /metrics": Row(READ),
    "GET /static/{name}": Row(PUBLIC),
    "GET /sign-in": Row(PUBLIC),
    "GET /sign-in/{link}": Row(PUBLIC),
    "POST /sign-in/{link}": Row(PUBLIC),
    "POST /sign-out": Row(PUBLIC),
    "GET /api/docs": Row(PUBLIC),
    "GET /api/docs/start.js": Row(PUBLIC),
    "GET /api/docs/{name}": Row(PUBLIC, path="/api/docs/swagger-ui.css"),
    "GET /api/events": Row(READ, is_stream=True),
    "GET /api/me": Row(READ),
    "GET /api/tokens": Row(READ),
    # By a token; a member who is signed in may make their own, see test_gate and test_tokens.
    "POST /api/tokens": Row(ADMIN, send=json(name="t", scopes=["read"])),
    "DELETE /api/tokens/{token_id}": Row(ADMIN, GONE),
    "GET /api/sessions": Row(READ),
    # As with tokens, a member may end their own: see test_access.
    "DELETE /api/sessions/{session_id}": Row(ADMIN, GONE),
    # Of the one who asks; by a token of an admin, as with tokens.
    "DELETE /api/sessions": Row(ADMIN),
    "GET /api/users": Row(ADMIN),
    "POST /api/users": Row(ADMIN, send=json(name="eve", role="viewer")),
    "POST /api/users/{name}/role": Row(ADMIN, GONE, send=json(role="viewer")),
    "POST /api/users/{name}/disable": Row(ADMIN, GONE),
    "POST /api/users/{name}/link": Row(ADMIN, GONE),
    "GET /api/audit": Row(ADMIN),
    "GET /api/jobs": Row(READ),
    "POST /api/jobs": Row(WRITE, send=json(kind="errand")),
    "POST /api/jobs/bulk": Row(WRITE, send=json(verb="stop", filter={"kind": "errand"})),
    "GET /api/jobs/{job_id}": Row(READ, GONE),
    "DELETE /api/jobs/{job_id}": Row(WRITE, GONE),
    "POST /api/jobs/{job_id}/stop": Row(WRITE, GONE),
    "POST /api/jobs/{job_id}/resume": Row(WRITE, GONE),
    "POST /api/jobs/{job_id}/cancel": Row(WRITE, GONE),
    "POST /api/jobs/{job_id}/retry": Row(WRITE, GONE),
    "POST /api/jobs/{job_id}/priority": Row(WRITE, GONE, send=json(priority=2)),
    "GET /api/jobs/{job_id}/explain": Row(READ, GONE),
    "GET /api/jobs/{job_id}/events": Row(READ, GONE),
    "GET /api/jobs/{job_id}/tasks": Row(READ, GONE),
    "GET /api/jobs/{job_id}/attempts": Row(READ, GONE),
    "GET /api/jobs/{job_id}/files": Row(READ, GONE),
    "GET /api/kinds": Row(READ),
    "POST /api/kinds/{name}/pause": Row(OPERATE, FORBIDDEN, path="/api/kinds/wait/pause"),
    "POST /api/kinds/{name}/unpause": Row(OPERATE, FORBIDDEN, path="/api/kinds/wait/unpause"),
    "GET /api/documents": Row(READ),
    "POST /api/documents": Row(WRITE, path="/api/documents?name=m.txt", send={"content": b"m"}),
    "GET /api/documents/{document_id}": Row(READ, GONE),
    "DELETE /api/documents/{document_id}": Row(WRITE, GONE),
    "POST /api/documents/{document_id}/reindex": Row(WRITE, GONE),
    "GET /api/documents/{document_id}/explain": Row(READ, GONE),
    "GET /api/documents/{document_id}/generations": Row(READ, GONE),
    "GET /api/documents/{document_id}/pages": Row(READ, GONE),
    "GET /api/documents/{document_id}/pages/{number}": Row(READ, GONE),
    "GET /api/documents/{document_id}/pages/{number}/image": Row(READ, GONE),
    "GET /api/documents/{document_id}/pages/{number}/blocks": Row(READ, GONE),
    "GET /api/documents/{document_id}/outline": Row(READ, GONE),
    "GET /api/documents/{document_id}/tables": Row(READ, GONE),
    "GET /api/documents/{document_id}/markdown": Row(READ, GONE),
    "GET /api/documents/{document_id}/tokens": Row(READ, GONE),
    "GET /api/documents/{document_id}/chunks": Row(READ, GONE),
    "GET /api/documents/{document_id}/file": Row(READ, GONE),
    "GET /api/documents/{document_id}/thumbnail": Row(READ, GONE),
    "GET /api/search": Row(READ, path="/api/search?q=tide&mode=text"),
    "GET /api/corpora": Row(READ),
    "POST /api/corpora": Row(WRITE, send=json(name="made")),
    "GET /api/corpora/{name:path}": Row(READ, GONE, path="/api/corpora/plain"),
    "PATCH /api/corpora/{name:path}": Row(
        WRITE, GONE, path="/api/corpora/plain", send=json(settings={"page_size": 9})
    ),
    "GET /api/synonyms/{name:path}": Row(READ, GONE, path="/api/synonyms/plain"),
    "PUT /api/synonyms/{name:path}": Row(
        WRITE, GONE, path="/api/synonyms/plain", send=json(list="finance")
    ),
    "DELETE /api/synonyms/{name:path}": Row(WRITE, GONE, path="/api/synonyms/plain"),
    "POST /api/corpora/{name:path}/reindex": Row(
        WRITE, GONE, path="/api/corpora/plain/reindex", send=json(dry_run=True)
    ),
    "DELETE /api/corpora/{name:path}": Row(WRITE, GONE, path="/api/corpora/plain"),
    "GET /api/workers": Row(READ),
    "GET /api/status": Row(READ),
    "GET /api/scheduler/status": Row(READ),
    "GET /": Row(READ),
    "GET /workers": Row(READ),
    "GET /jobs": Row(READ),
    "POST /jobs/bulk": Row(WRITE, send=form(verb="stop", scope="filter", kind="errand", sure="1")),
    "GET /jobs/{job_id}": Row(READ, GONE),
    "GET /jobs/{job_id}/delete": Row(WRITE, GONE),
    "POST /jobs/{job_id}/{verb}": Row(WRITE, GONE),
    "GET /documents": Row(READ),
    "POST /documents": Row(WRITE, send={"files": [("files", ("w.txt", b"w"))]}),
    "GET /documents/{document_id}": Row(READ, GONE),
    "GET /documents/{document_id}/delete": Row(WRITE, GONE),
    "POST /documents/{document_id}/delete": Row(WRITE, GONE),
    "POST /documents/{document_id}/reindex": Row(WRITE, GONE),
    "GET /corpora": Row(READ),
    "POST /corpora": Row(WRITE, send=form(name="drawn")),
    "GET /corpora/{name:path}": Row(READ, GONE, path="/corpora/plain"),
    "POST /corpora/{name:path}": Row(
        WRITE, GONE, path="/corpora/plain", send=form(page_size="8", sure="yes")
    ),
    "GET /synonyms/{name:path}": Row(READ, GONE, path="/synonyms/plain"),
    "POST /synonyms/{name:path}": Row(
        WRITE, GONE, path="/synonyms/plain", send=form(csv="sales,turnover")
    ),
    "POST /kinds/{name}/{verb}": Row(OPERATE, FORBIDDEN, path="/kinds/wait/pause"),
    "GET /search": Row(READ),
    "GET /settings": Row(OPERATE, FORBIDDEN),
    "GET /api/tenants": Row(OPERATE, FORBIDDEN),
    "GET /tenants": Row(OPERATE, FORBIDDEN),
    "GET /oidc/start": Row(PUBLIC),
    "GET /oidc/callback": Row(PUBLIC),
    "GET /account": Row(READ),
    "POST /account/sessions/end-others": Row(ADMIN),
    "POST /account/sessions/{session_id}/end": Row(OWNER, GONE),
    "POST /account/tokens/{token_id}/revoke": Row(OWNER, GONE),
    "GET /tokens": Row(READ),
    "POST /tokens": Row(ADMIN, send=form(name="w", scope="read")),
    "POST /tokens/{token_id}/revoke": Row(ADMIN, GONE),
    "GET /users": Row(ADMIN),
    "POST /users": Row(ADMIN, send=form(name="mallory", role="viewer")),
    "POST /users/role": Row(ADMIN, GONE, send=form(name="victim", role="viewer")),
    "POST /users/disable": Row(ADMIN, GONE, send=form(name="victim")),
    "POST /users/link": Row(ADMIN, GONE, send=form(name="victim")),
    "GET /audit": Row(ADMIN),
}


#: Where a token that is bound to a corpus is let in; in all other routes it is refused, whatever
#: they are about. What is of another corpus is not there: see `test_corpus_tokens` too.
BOUND = frozenset(
    {
        "GET /api/me", "POST /api/jobs", "GET /api/jobs/{job_id}", "GET /api/jobs/{job_id}/events",
        "GET /api/jobs/{job_id}/files", "GET /api/documents", "POST /api/documents",
        "GET /api/documents/{document_id}", "GET /api/documents/{document_id}/generations",
        "GET /api/documents/{document_id}/pages", "GET /api/documents/{document_id}/pages/{number}",
        "GET /api/documents/{document_id}/pages/{number}/image",
        "GET /api/documents/{document_id}/pages/{number}/blocks",
        "GET /api/documents/{document_id}/outline", "GET /api/documents/{document_id}/tables",
        "GET /api/documents/{document_id}/markdown",
        "GET /api/documents/{document_id}/tokens", "GET /api/documents/{document_id}/chunks",
        "GET /api/documents/{document_id}/file", "GET /api/documents/{document_id}/thumbnail",
        "GET /api/search", "GET /api/corpora", "GET /api/corpora/{name:path}",
        "GET /api/synonyms/{name:path}",
    }
)  # fmt: skip
#: Of these, where it may not name what is of another corpus.
NAMED = frozenset(route for route in BOUND if "{" in route)
_INGEST = json(kind="ingest", payload={"sources": ["https://example.org/a.pdf"]})


class Town:
    """The whole application with something in it that others must not reach."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder)
        self.house.api = server.create(self.house.shelf.app)
        self.clients = {role: signing.by_token(self.house.api, role) for role in ROLES}
        self.stranger, self.foreigner = self.house.stranger, self.house.foreigner
        self.document = self.house.upload("hushed.pdf", sailing_book(), self.clients["admin"])
        caller = signing.member(self.house.api, "member")
        corpora.create(caller, "elsewhere", {})
        self.bound = {name: self.bound_to(name) for name in ("plain", "elsewhere")}
        self.ingest = self.clients["admin"].get(f"/api/documents/{self.document}").json()["job_id"]
        self.job = self.house.submit(self.clients["admin"], payload={"hushed": 1})
        victim = signing.by_token(self.house.api, "member", user="victim")
        [token] = victim.get("/api/tokens").json()["items"]
        self.token = token["id"]
        signing.by_session(self.house.api, "member", user="visitor")
        [session] = self.clients["admin"].get("/api/sessions").json()["items"]
        self.session = session["id"]

    def bound_to(self, corpus: str) -> TestClient:
        """A client with a member's token that is bound to a corpus."""
        caller = signing.member(self.house.api, "member")
        client = signing.stranger(self.house.api)
        token = access.create_token(caller, corpus, ["write"], user="member", corpus=corpus)
        client.headers["Authorization"] = f"Bearer {token['token']}"
        return client

    def ask_bound(self, client: TestClient, route: str) -> Any:
        """Ask for what is of the corpus plain."""
        method, _, path = route.partition(" ")
        row = TABLE[route]
        path = (row.path or path).replace("{job_id}", str(self.ingest))
        send = _INGEST if route == "POST /api/jobs" else row.send or {}
        return client.request(method, self.place(path), **send)

    def place(self, path: str) -> str:
        values = {
            "{job_id}": self.job, "{document_id}": self.document, "{number}": 1,
            "{token_id}": self.token, "{session_id}": self.session, "{name}": "victim",
            "{link}": "nobody-has-this-link",
            "{verb}": "stop",
        }  # fmt: skip
        for name, value in values.items():
            path = path.replace(name, str(value))
        return path

    def ask(self, client: TestClient, route: str) -> Any:
        method, _, path = route.partition(" ")
        row = TABLE[route]
        return client.request(method, self.place(row.path or path), **(row.send or {}))

    def picture(self) -> list[Any]:
        """What must be the same after those who may not have tried."""
        admin = self.clients["admin"]
        places = (f"/api/jobs/{self.job}", f"/api/documents/{self.document}", "/api/jobs",
                  "/api/documents", "/api/corpora/plain", "/api/users", "/api/kinds")  # fmt: skip
        tokens = [each["id"] for each in admin.get("/api/tokens").json()["items"]]
        sessions = [each["id"] for each in admin.get("/api/sessions").json()["items"]]
        return [*(admin.get(place).json() for place in places), tokens, sessions]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("town"))
    yield town
    for client in town.clients.values():
        client.close()
    town.house.close()


def walked(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "original_router"):
            yield from walked(route.original_router.routes)
        else:
            yield route


def routes_of(api: FastAPI) -> set[str]:
    return {
        f"{method} {route.path}"
        for route in walked(api.routes)
        for method in route.methods - {"HEAD"}
    }


def test_every_route_is_in_the_table(town: Town):
    assert routes_of(town.house.api) == set(TABLE)


def test_a_route_that_nobody_entered_is_noticed_in_the_api_and_in_the_dashboard(town: Town):
    planted = server.create(town.house.shelf.app)
    for prefix in ("/api/planted", "/planted"):
        router = APIRouter(prefix=prefix)
        router.get("/{name}")(lambda name: name)
        planted.include_router(router)
    planted.add_api_route("/api/jobs", lambda: None, methods=["PUT"])
    assert routes_of(planted) - set(TABLE) == {
        "GET /api/planted/{name}", "GET /planted/{name}", "PUT /api/jobs"
    }  # fmt: skip


#: What stands for `{verb}` in the routes of the dashboard.
VERBS = {
    "/jobs/{job_id}/{verb}": {"stop", "resume", "cancel", "retry", "delete", "priority"},
    "/kinds/{name}/{verb}": {"pause", "unpause"},
}


def test_each_verb_of_the_dashboard_is_refused_as_its_route_is(town: Town):
    before = town.picture()
    assert {route.partition(" ")[2] for route in TABLE if "{verb}" in route} == set(VERBS)
    job, kind = VERBS
    assert VERBS[job] == {*web_jobs.VERBS, "priority"}
    assert VERBS[kind] == set(overview.PAUSING)
    for verb in VERBS[job]:
        path = town.place(job.replace("{verb}", verb))
        for client, expected in ((town.clients["viewer"], 403), (town.foreigner, GONE)):
            answer = client.post(path, data={"priority": "2", "sure": "yes"})
            assert answer.status_code == expected, (verb, answer.text)
    for verb in VERBS[kind]:
        for client in (*(town.clients[role] for role in ROLES[:3]), town.foreigner):
            assert client.post(f"/kinds/wait/{verb}").status_code == 403, verb
    assert town.picture() == before


def test_a_stranger_is_let_in_nowhere_and_changes_nothing(town: Town):
    before = town.picture()
    for route, row in TABLE.items():
        answer = town.ask(town.stranger, route)
        if row.may == PUBLIC:
            assert answer.status_code < 500, route
        elif "/api/" in route or "/metrics" in route:
            assert answer.status_code == 401, (route, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"
        else:
            assert answer.status_code in (302, 303, 307, 401), (route, answer.text)
        assert "hushed" not in answer.text, route
    assert town.picture() == before


def test_a_role_that_may_not_is_refused_and_changes_nothing(town: Town):
    before = town.picture()
    for route, row in TABLE.items():
        for role in ROLES:
            if row.may != PUBLIC and role not in row.may.split():
                answer = town.ask(town.clients[role], route)
                expected = (403, 404) if "token_id" in route or "session_id" in route else (403,)
                assert answer.status_code in expected, (role, route, answer.text)
    assert town.picture() == before


def test_an_admin_of_another_tenant_finds_nothing_and_changes_nothing(town: Town):
    before = town.picture()
    for route, row in TABLE.items():
        if row.is_stream or row.may == PUBLIC:
            continue
        answer = town.ask(town.foreigner, route)
        if row.other in (GONE, FORBIDDEN):
            assert answer.status_code == row.other, (route, answer.text)
        else:
            assert answer.status_code < 400, (route, answer.text)
        assert "hushed" not in answer.text, route
    assert town.picture() == before


def test_an_instance_admin_of_another_tenant_operates_and_finds_nothing(town: Town):
    operator = signing.by_token(town.house.api, "instance-admin", tenant="third")
    before = town.picture()
    for route, row in TABLE.items():
        if row.is_stream or row.may == PUBLIC or "kinds/" in route:
            continue
        answer = town.ask(operator, route)
        if row.other == GONE:
            assert answer.status_code == GONE, (route, answer.text)
        else:
            assert answer.status_code < 400, (route, answer.text)
        assert "hushed" not in answer.text, route
    assert town.picture() == before


def test_a_token_bound_to_a_corpus_is_let_in_where_it_may_and_refused_elsewhere(town: Town):
    before = town.picture()
    assert set(TABLE) >= BOUND
    writes = {"POST /api/jobs", "POST /api/documents"}
    for route in sorted(set(TABLE) - writes) + sorted(writes):
        if route in writes:
            assert town.picture() == before
            before = town.picture()
        if TABLE[route].may == PUBLIC:
            continue
        answer = town.ask_bound(town.bound["plain"], route)
        if route in BOUND:
            assert answer.status_code in (200, 201), (route, answer.text)
        else:
            assert answer.status_code == 403, (route, answer.text)
            assert "hushed" not in answer.text, route
        if route in writes:
            before = town.picture()


def test_for_a_token_of_another_corpus_what_is_not_in_it_is_not_there(town: Town):
    before = town.picture()
    for route in sorted(BOUND - {"POST /api/jobs", "POST /api/documents"}):
        answer = town.ask_bound(town.bound["elsewhere"], route)
        assert answer.status_code == (404 if route in NAMED else 200), (route, answer.text)
        assert "hushed" not in answer.text, route
        if route == "GET /api/corpora":
            assert [each["name"] for each in answer.json()["items"]] == ["elsewhere"]
        elif route not in NAMED and route != "GET /api/me":
            assert answer.json()["items"] == []
    assert town.picture() == before


def _removes(route: str) -> bool:
    return route.startswith("DELETE") or (route.startswith("POST") and route.endswith("/delete"))


def test_roles_that_may_are_let_in(town: Town):
    # What removes things comes last, or the routes after it would find nothing.
    ordered = sorted(TABLE, key=_removes)
    for route in ordered:
        row = TABLE[route]
        for role in () if row.may in (PUBLIC, OWNER) or row.is_stream else row.may.split():
            answer = town.ask(town.clients[role], route)
            let_in = answer.status_code < 400 or answer.status_code in (409, 422)
            was_first = role == row.may.split()[0]
            assert let_in or (answer.status_code == 404 and not was_first), (
                role, route, answer.status_code, answer.text[:300],
            )  # fmt: skip


#: Who may submit a kind, and a payload that it takes. Nobody's are Quire's own tasks, and kinds for
#: trying out on the server's machine.
NOBODY = ""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ingest": (WRITE, {"sources": ["https://example.org/a.pdf"]}),
    "ingest.document": (NOBODY, {"document": 1, "digest": "0" * 64, "size": 1}),
    "ingest.range": (NOBODY, {"document": 1}),
    "ingest.swap": (NOBODY, {"document": 1}),
    "noop": (NOBODY, {}),
    "wait": (NOBODY, {"seconds": 1}),
    "errand": (WRITE, {}),
    "errand.long": (WRITE, {}),
    "errand.private": (NOBODY, {}),
}


def test_every_kind_is_in_the_table(town: Town):
    assert set(town.house.shelf.app.registry.kinds) == set(KINDS)
    assert set(payloads.BUILT_IN) <= set(KINDS)
    offered = {each["name"] for each in town.clients["viewer"].get("/api/kinds").json()["items"]}
    assert offered == set(KINDS)


def test_a_kind_is_submitted_by_those_who_may(town: Town):
    others = {
        "stranger": town.stranger,
        "foreigner": town.foreigner,
        "bound": town.bound["elsewhere"],
    }
    for kind, (may, payload) in KINDS.items():
        for role, client in {**town.clients, **others}.items():
            answer = client.post("/api/jobs", json={"kind": kind, "payload": payload})
            allowed = role in may.split() or (role == "foreigner" and may == WRITE)
            allowed |= role == "bound" and kind == "ingest"
            expected = 401 if role == "stranger" else 201 if allowed else 403
            assert answer.status_code == expected, (kind, role, answer.text)


#: A source of each sort; GRANTED is the place that grants it. Whether a host needs one is judged
#: when it is connected to: see tests/api/test_sources.py.
SOURCES: dict[places.Type, tuple[tuple[str, ...], str]] = {
    places.Type.PATH: (("/srv/share/a", "file:///srv/share"), "/srv/share"),
    places.Type.BUCKET: (("s3://b/in/x", "gs://b/in", "az://b/in/"), "{scheme}://b/in"),
    places.Type.DRIVE: (
        ("gdrive:1AbCdEfGhIjKlMnOp", "https://drive.google.com/drive/folders/1AbCdEfGhIjKlMnOp"),
        "gdrive:1AbCdEfGhIjKlMnOp",
    ),
    places.Type.PLUGIN: (("shelf:top/left",), "shelf:top"),
    places.Type.HOST: (("http://example.org/a", "https://example.org/a"), ""),
}


def test_every_sort_of_source_is_in_the_table():
    assert set(SOURCES) == set(places.Type)
    named = {each.partition(":")[0] for some, _ in SOURCES.values() for each in some}
    assert named >= {*OWN_SCHEMES}


@pytest.mark.parametrize("granted_to", ["own tenant", "other tenant", "nobody"])
def test_a_source_is_named_by_those_to_whom_it_is_granted(town: Town, granted_to: str):
    tenant = {"own tenant": "default", "other tenant": "other", "nobody": None}[granted_to]
    caller = replace(town.house.shelf.app.caller, tenant=tenant or "")
    clients = {**town.clients, "foreigner": town.foreigner}
    for type, (examples, grant) in SOURCES.items():
        for source in examples:
            place = grant.replace("{scheme}", source.partition(":")[0])
            if tenant and place:
                sources.allow(caller, place)
            for role, client in clients.items():
                payload = {"sources": [source], "settings": {"embedder": "none"}}
                answer = client.post("/api/jobs", json={"kind": "ingest", "payload": payload})
                its = "other" if role == "foreigner" else "default"
                allowed = role != "viewer" and (type is places.Type.HOST or its == tenant)
                expected = 201 if allowed else 403
                assert answer.status_code == expected, (source, role, granted_to, answer.text)
            if tenant and place:
                sources.revoke(caller, place)
