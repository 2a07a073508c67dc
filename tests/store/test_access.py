"""Users, tokens, links, sessions and the audit, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import access, doctor, sign_in
from quire.errors import BadInput, Conflict, Forbidden, NotFound, NotSignedIn
from quire.model.access import MAY, SCOPE_SETS, Role, Scope, with_lesser, written
from quire.runtime import scheduler
from quire.settings import Settings
from quire.store.db.schema import queue as tables
from tests.store.doctor.test_doctor import Damage, damage, unguarded
from tests.store.queue.test_concurrency import at_once
from tests.store.stage import Stage

DAY = 86_400.0


@pytest.fixture
def house(stage: Stage) -> Stage:
    """A tenant with an admin called ada, and another one with its own ada.

    The instance admin is of a third tenant.
    """
    access.ensure_admin(stage.caller("olga", tenant="operators"))
    access.ensure_admin(stage.caller("ada"))
    access.ensure_admin(stage.caller("ada", tenant="other"))
    return stage


def actions(stage: Stage, tenant: str = "default") -> list[str]:
    found = access.read_audit(stage.caller(tenant=tenant), limit=1000)
    return [each["action"] for each in reversed(found)]


def enter(stage: Stage, user: str = "ada", **more: Any) -> sign_in.Entry:
    link = sign_in.sign_in_link(stage.caller("ada", **more), user)["link"]
    return sign_in.sign_in(stage.db, link, days=14, tenant="default", address="10.0.0.9")


def test_the_first_user_is_an_admin_and_signs_in_with_a_link(stage: Stage):
    caller = stage.caller("ada")
    first = sign_in.first_start(caller)
    assert first is not None
    assert sign_in.user_of_link(stage.db, first) == "ada"
    # A restart before anybody came in gives another link; both work.
    assert sign_in.first_start(caller) not in (None, first)
    entry = sign_in.sign_in(stage.db, first, days=14, tenant="default")
    viewer = sign_in.viewer_by_session(stage.db, entry.cookie)
    assert viewer == entry.viewer
    assert (viewer.user, viewer.role) == ("ada", Role.INSTANCE_ADMIN)
    assert viewer.scopes == frozenset(Scope)
    assert viewer.csrf
    assert sign_in.first_start(caller) is None
    assert actions(stage) == ["user.create", "link.create", "link.create", "sign_in"]


def test_only_hashes_are_stored(house: Stage):
    token = access.create_token(house.caller(), "ci")["token"]
    link = sign_in.sign_in_link(house.caller(), "ada")["link"]
    cookie = enter(house).cookie
    with house.db.read() as conn:
        for table in ("users", "tokens", "links", "sessions", "audit"):
            stored = str(conn.execute(sa.select(tables.metadata.tables[table])).all())
            assert not [secret for secret in (token, link, cookie) if secret in stored]
    assert token.startswith("quire_")


def test_a_link_is_used_once_and_for_a_quarter_of_an_hour(house: Stage):
    caller = house.caller()
    link = sign_in.sign_in_link(caller, "ada")["link"]
    sign_in.sign_in(house.db, link, days=14, tenant="default")
    with pytest.raises(NotSignedIn, match="was used already"):
        sign_in.sign_in(house.db, link, days=14, tenant="default")
    late = sign_in.sign_in_link(caller, "ada")["link"]
    house.clock.advance(sign_in.LINK_SECONDS)
    for act in (
        lambda: sign_in.sign_in(house.db, late, days=14, tenant="default"),
        lambda: sign_in.user_of_link(house.db, late),
    ):
        with pytest.raises(NotSignedIn, match="has expired"):
            act()
    for odd in ("", "x" * 10_000, "\0", "nothing", "\udcff"):
        with pytest.raises(NotSignedIn, match="not known"):
            sign_in.sign_in(house.db, odd, days=14, tenant="default", address="10.0.0.9")
    refused = access.read_audit(caller, action="sign_in.refused", limit=1000)
    assert len(refused) == 7
    assert refused[0]["address"] == "10.0.0.9"
    assert refused[-1]["user"] == "ada"
    assert refused[-1]["detail"] == {"by": "link", "reason": "was used already"}


def test_of_many_who_use_one_link_at_once_one_comes_in(house: Stage):
    link = sign_in.sign_in_link(house.caller(), "ada")["link"]

    def use() -> bool:
        try:
            sign_in.sign_in(house.db, link, days=14, tenant="default")
        except NotSignedIn:
            return False
        return True

    assert sorted(at_once(*[use] * 6)) == [False] * 5 + [True]
    assert house.count("sessions") == 1


def test_two_admins_cannot_lower_each_other_at_once(house: Stage):
    for name in ("bob", "eve"):
        access.create_user(house.caller(), name, "admin")
    access.set_role(house.caller(), "ada", "member")

    def lower(name: str) -> bool:
        try:
            access.set_role(house.caller(), name, "viewer")
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lower, ["bob", "eve"])) == [False, True]


def test_a_session_ends_by_time_by_signing_out_and_with_its_user(house: Stage):
    entry = enter(house)
    house.clock.advance(14 * DAY - 1)
    viewer = sign_in.viewer_by_session(house.db, entry.cookie)
    house.clock.advance(1)
    with pytest.raises(NotSignedIn, match="session: has ended"):
        sign_in.viewer_by_session(house.db, entry.cookie)
    entry = enter(house)
    sign_in.sign_out(house.db, entry.cookie, viewer)
    sign_in.sign_out(house.db, entry.cookie, viewer)
    access.create_user(house.caller(), "bob", "member")
    other = enter(house, "bob")
    access.disable_user(house.caller(), "bob")
    for cookie in (entry.cookie, other.cookie, "", "nothing", "x" * 10_000):
        with pytest.raises(NotSignedIn, match="session: has ended"):
            sign_in.viewer_by_session(house.db, cookie)
    assert actions(house).count("sign_out") == 1


def test_a_token_gives_its_scopes_and_no_more_than_its_user_s_role(house: Stage):
    caller = house.caller()
    access.create_user(caller, "bob", "member")
    token = access.create_token(caller, "ci", ["write"], 30, user="bob")
    assert token["scopes"] == ["read", "write"]
    viewer = sign_in.viewer_by_token(house.db, token["token"])
    assert (viewer.tenant, viewer.user, viewer.csrf) == ("default", "bob", None)
    assert (viewer.may(Scope.WRITE), viewer.may(Scope.ADMIN)) == (True, False)
    access.set_role(caller, "bob", "viewer")
    assert sign_in.viewer_by_token(house.db, token["token"]).scopes == {Scope.READ}
    with pytest.raises(BadInput, match="write exceeds the permissions of user bob as viewer"):
        access.create_token(caller, "x", ["write"], user="bob")
    assert access.create_token(caller, "all of it", user="bob")["scopes"] == ["read"]


def test_a_token_that_ended_says_why(house: Stage):
    caller = house.caller()
    access.create_user(caller, "bob", "member")
    short = access.create_token(caller, "short", days=1)
    gone = access.create_token(caller, "gone")
    theirs = access.create_token(caller, "theirs", user="bob")
    access.revoke_token(caller, gone["id"])
    access.disable_user(caller, "bob")
    house.clock.advance(DAY)
    for token, reason in (
        (short["token"], "has expired"),
        (gone["token"], "was revoked"),
        (theirs["token"], "its user is disabled"),
        ("quire_" + "x" * 43, "unknown"),
        ("\udcff", "unknown"),
        ("", "unknown"),
    ):
        with pytest.raises(NotSignedIn, match=reason):
            sign_in.viewer_by_token(house.db, token)
    states = {each["name"]: each["state"] for each in access.list_tokens(caller)}
    assert states == {"short": "expired", "gone": "revoked", "theirs": "revoked"}


def test_a_disabled_user_who_comes_back_keeps_no_token_or_session(house: Stage):
    caller = house.caller()
    access.create_user(caller, "bob", "member")
    token = access.create_token(caller, "t", user="bob")["token"]
    link = sign_in.sign_in_link(caller, "bob")["link"]
    cookie = enter(house, "bob").cookie
    access.disable_user(caller, "bob")
    with pytest.raises(Conflict, match="is disabled"):
        access.create_token(caller, "t2", user="bob")
    with pytest.raises(Conflict, match="is disabled"):
        sign_in.sign_in_link(caller, "bob")
    back = access.create_user(caller, "bob", "viewer")
    assert (back["role"], back["disabled_at"]) == ("viewer", None)
    with pytest.raises(NotSignedIn, match="revoked"):
        sign_in.viewer_by_token(house.db, token)
    with pytest.raises(NotSignedIn):
        sign_in.viewer_by_session(house.db, cookie)
    with pytest.raises(NotSignedIn):
        sign_in.sign_in(house.db, link, days=14, tenant="default")
    assert "user.enable" in actions(house)


def test_use_is_written_at_most_once_a_minute(house: Stage):
    token = access.create_token(house.caller(), "ci")
    cookie = enter(house).cookie
    began = house.now().wall
    seen = []
    for seconds in (0, 30, 29, 1, 59):
        house.clock.advance(seconds)
        sign_in.viewer_by_token(house.db, token["token"])
        sign_in.viewer_by_session(house.db, cookie)
        [used], [session] = house.rows("tokens"), house.rows("sessions")
        seen.append((used.last_used_at - began, session.last_seen_at - began))
    assert seen == [(0, 0), (0, 0), (0, 0), (60, 60), (60, 60)]


def test_the_last_admin_stays(house: Stage):
    caller = house.caller()
    access.create_user(caller, "bob", "admin")
    access.disable_user(caller, "bob")
    for act in (
        lambda: access.set_role(caller, "ada", "member"),
        lambda: access.disable_user(caller, "ada"),
    ):
        with pytest.raises(Conflict, match="last admin"):
            act()
    access.create_user(caller, "bob", "admin")
    assert access.set_role(caller, "ada", "viewer")["role"] == "viewer"


def test_only_the_first_user_of_a_database_is_an_instance_admin(stage: Stage):
    roles = {}
    for tenant in ("default", "other"):
        caller = stage.caller("ada", tenant=tenant)
        sign_in.first_start(caller)
        access.create_user(caller, "bob", "member")
        roles[tenant] = {each["name"]: each["role"] for each in access.list_users(caller)}
    assert roles["default"] == {"ada": "instance-admin", "bob": "member"}
    assert roles["other"] == {"ada": "admin", "bob": "member"}


def test_admins_of_the_server_s_tenant_become_instance_admins_once(stage: Stage):
    """As after an upgrade, when nobody is one."""
    caller, other = stage.caller("ada"), stage.caller("zoe", tenant="other")
    for who, names in ((caller, ("ada", "bob", "eve")), (other, ("zoe",))):
        for name in names:
            access.create_user(who, name, "viewer" if name == "eve" else "admin")
    access.disable_user(caller, "bob")
    sign_in.first_start(caller)
    sign_in.first_start(other)
    rows = {(row.tenant, row.name): (row.role, row.operates) for row in stage.rows("users")}
    assert rows["default", "ada"] == ("admin", True)
    assert [key for key, (_, operates) in rows.items() if operates] == [("default", "ada")]
    [noted] = access.read_audit(caller, action="user.role")
    assert noted["detail"] == {"role": "instance-admin", "before": "admin"}
    # Who is made an admin later does not become one at the next start.
    access.create_user(caller, "bob", "admin")
    sign_in.first_start(caller)
    assert not any(row.operates for row in stage.rows("users") if row.name == "bob")


def test_the_last_instance_admin_stays(stage: Stage):
    caller = stage.caller("ada")
    access.ensure_admin(caller)
    access.create_user(caller, "bob", "admin")
    for act in (
        lambda: access.set_role(caller, "ada", "admin"),
        lambda: access.set_role(caller, "ada", "viewer"),
        lambda: access.disable_user(caller, "ada"),
    ):
        with pytest.raises(Conflict, match="last instance admin"):
            act()
    other = stage.caller("zoe", tenant="other")
    access.create_user(other, "zoe", "instance-admin")
    assert access.set_role(caller, "ada", "admin")["role"] == "admin"
    with pytest.raises(Conflict, match="last admin of the tenant"):
        access.disable_user(other, "zoe")
    access.create_user(other, "yan", "admin")
    with pytest.raises(Conflict, match="last instance admin"):
        access.disable_user(other, "zoe")


def test_nobody_gives_or_touches_a_role_above_their_own(house: Stage):
    caller = house.caller()
    for name, role in (("ida", "instance-admin"), ("gone", "instance-admin"), ("bob", "member")):
        access.create_user(caller, name, role)
    access.disable_user(caller, "gone")
    token = access.create_token(caller, "hers", user="ida")
    session = enter(house, "ida")
    [listed] = access.list_sessions(caller, user="ida")
    admin = replace(caller, role=Role.ADMIN, origin="api")
    before = (house.rows("users"), house.rows("tokens"), house.rows("links"), actions(house))
    for act in (
        lambda: access.create_user(admin, "eve", "instance-admin"),
        lambda: access.create_user(admin, "gone", "viewer"),
        lambda: access.set_role(admin, "bob", "instance-admin"),
        lambda: access.set_role(admin, "ada", "instance-admin"),
        lambda: access.set_role(admin, "ida", "viewer"),
        lambda: access.disable_user(admin, "ida"),
        lambda: access.create_token(admin, "t", user="ida"),
        lambda: access.revoke_token(admin, token["id"]),
        lambda: access.end_session(admin, listed["id"]),
        lambda: sign_in.sign_in_link(admin, "ida"),
    ):
        with pytest.raises(Forbidden):
            act()
    told = actions(house)
    refused = [each for each in told if each.endswith(".refused")]
    kept = [each for each in told if not each.endswith(".refused")]
    assert (house.rows("users"), house.rows("tokens"), house.rows("links"), kept) == before
    assert len(refused) == 10
    assert sign_in.viewer_by_session(house.db, session.cookie).operates
    assert access.set_role(admin, "bob", "admin")["role"] == "admin"


def test_an_instance_admin_operates_only_with_the_scope_of_an_admin(house: Stage):
    caller = house.caller()
    access.create_user(caller, "ida", "instance-admin")
    for scope, operates in (("read", False), ("write", False), ("admin", True)):
        token = access.create_token(caller, scope, [scope], user="ida")["token"]
        assert sign_in.viewer_by_token(house.db, token).operates is operates


@pytest.mark.parametrize(
    "name", ["", " ada", "a\nb", "a/b", "..", "x" * 201, "a\0b", "a\udcffb", "​"]
)
def test_a_bad_name_is_refused(house: Stage, name: str):
    caller = house.caller()
    with pytest.raises(BadInput, match="a name has"):
        access.create_user(caller, name, "member")
    with pytest.raises(BadInput, match="a name has"):
        access.create_token(caller, name)
    with pytest.raises(BadInput, match="a name has"):
        sign_in.first_start(house.caller(name))
    for act in (
        lambda: access.set_role(caller, name, "member"),
        lambda: access.disable_user(caller, name),
        lambda: access.create_token(caller, "t", user=name),
        lambda: sign_in.sign_in_link(caller, name),
    ):
        with pytest.raises(NotFound, match="no such user"):
            act()


def test_what_cannot_be_is_refused_and_changes_nothing(house: Stage):
    caller = house.caller()
    before = actions(house)
    with pytest.raises(Conflict, match="already exists, as admin"):
        access.create_user(caller, "ada", "viewer")
    for act in (
        lambda: access.create_user(caller, "bob", "king"),
        lambda: access.set_role(caller, "ada", ""),
        lambda: access.create_token(caller, "t", ["fly"]),
        lambda: access.create_token(caller, "t", []),
        lambda: access.create_token(caller, "t", days=-1),
        lambda: access.create_token(caller, "t", days=float("nan")),
        lambda: access.create_token(caller, "t", days=1e9),
    ):
        with pytest.raises(BadInput):
            act()
    for unknown in (0, -1, 999, 2**70):
        with pytest.raises(NotFound, match="no such token"):
            access.revoke_token(caller, unknown)
    assert actions(house) == before
    assert (house.count("users"), house.count("tokens")) == (3, 0)


def test_another_tenant_s_users_and_tokens_are_not_there(house: Stage):
    mine, other = house.caller(), house.caller(tenant="other")
    access.create_user(other, "zoe", "admin")
    theirs = access.create_token(other, "theirs")
    assert [each["name"] for each in access.list_users(mine)] == ["ada"]
    assert access.list_tokens(mine) == []
    for act in (
        lambda: access.set_role(mine, "zoe", "viewer"),
        lambda: access.disable_user(mine, "zoe"),
        lambda: sign_in.sign_in_link(mine, "zoe"),
        lambda: access.create_token(mine, "t", user="zoe"),
        lambda: access.revoke_token(mine, theirs["id"]),
    ):
        with pytest.raises(NotFound):
            act()
    assert sign_in.viewer_by_token(house.db, theirs["token"]).tenant == "other"
    assert actions(house) == ["user.create"]
    assert actions(house, "other") == ["user.create", "user.create", "token.create"]


def test_a_user_may_be_limited_to_their_own_tokens(house: Stage):
    caller = house.caller()
    access.create_user(caller, "bob", "member")
    mine, his = access.create_token(caller, "mine"), access.create_token(caller, "his", user="bob")
    assert [each["id"] for each in access.list_tokens(caller, user="bob")] == [his["id"]]
    with pytest.raises(NotFound):
        access.revoke_token(caller, mine["id"], user="bob")
    assert access.revoke_token(caller, his["id"], user="bob")["state"] == "revoked"
    at = access.revoke_token(caller, his["id"], user="bob")["revoked_at"]
    house.clock.advance(5)
    assert access.revoke_token(caller, his["id"])["revoked_at"] == at
    assert actions(house).count("token.revoke") == 1
    assert [each["id"] for each in access.list_tokens(caller, before=his["id"])] == [mine["id"]]


def test_what_ended_is_pruned_with_the_rest(house: Stage):
    enter(house)
    sign_in.sign_in_link(house.caller(), "ada")
    sweep = Settings(keep_audit_days=20.0)
    scheduler._prune(house.db, sweep)
    assert [house.count(name) for name in ("sessions", "links", "audit")] == [1, 2, 6]
    house.clock.advance(14 * DAY + 1)
    scheduler._prune(house.db, sweep)
    assert [house.count(name) for name in ("sessions", "links", "audit")] == [0, 0, 6]
    house.clock.advance(6 * DAY)
    assert scheduler._prune(house.db, sweep)["audit"] == 6
    assert house.count("audit") == 0
    assert house.count("users") == 3


def test_the_audit_is_paged_and_filtered(house: Stage):
    caller = house.caller()
    for n in range(5):
        access.create_user(replace(caller, address="10.0.0.9"), f"u{n}", "viewer")
    first = access.read_audit(caller, limit=3)
    rest = access.read_audit(caller, limit=10, before=first[-1]["id"])
    assert [each["subject"] for each in (*first, *rest)] == ["u4", "u3", "u2", "u1", "u0", "ada"]
    assert first[0]["user"] == "ada"
    assert first[0]["detail"] == {"role": "viewer"}
    assert access.read_audit(caller, user="bob") == []


def test_constraints_are_those_of_the_model(house: Stage):
    access.create_token(house.caller(), "t")
    stored = set(Role) - {Role.INSTANCE_ADMIN}  # an admin with a mark
    for column, table, words in (("role", "users", stored), ("scopes", "tokens", SCOPE_SETS)):
        [check] = [
            c for c in tables.metadata.tables[table].constraints if c.name == f"ck_{table}_{column}"
        ]
        text = str(check.sqltext)  # type: ignore[attr-defined]
        assert sorted(text.split("'")[1::2]) == sorted(words)
        with pytest.raises(sa.exc.IntegrityError), house.db.begin() as conn:
            conn.exec_driver_sql(f"UPDATE {table} SET {column} = 'root'")
    for role in Role:
        assert written(MAY[role]) in SCOPE_SETS
        assert with_lesser(MAY[role]) == MAY[role]


DAMAGES = [
    damage("users.constraints", "UPDATE users SET role = 'king'"),
    damage("tokens.constraints", "UPDATE tokens SET scopes = 'write'"),
    damage("tokens.user_id", "UPDATE tokens SET user_id = 999"),
    damage("sessions.user_id", "UPDATE sessions SET user_id = 999"),
    damage("links.user_id", "UPDATE links SET user_id = 999"),
]


@pytest.mark.parametrize("harm", DAMAGES, ids=lambda harm: harm.name)
def test_the_doctor_finds_damage(db: Any, harm: Damage):
    stage = Stage(db)
    access.ensure_admin(stage.caller("ada"))
    access.create_token(stage.caller(), "t")
    enter(stage)
    assert doctor.examine(db).is_healthy
    with unguarded(db) as conn:
        for statement in harm.statements:
            conn.exec_driver_sql(statement)
    assert [each.name for each in doctor.examine(db).violations] == [harm.name]
