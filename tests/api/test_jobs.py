"""Jobs by the API: list, submit, change, explain; bad input and other tenants."""

from __future__ import annotations

from typing import Any

import pytest

from quire.api import body_limits
from quire.model.states import JobState, allowed
from tests.api.house import House

VERBS = ("stop", "resume", "cancel", "retry")
PARTS = ("explain", "events", "tasks", "attempts", "files")


def get(house: House, path: str, **params: Any) -> Any:
    answer = house.admin.get(f"/api/jobs{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_job_is_submitted_shown_and_run(each_house: House):
    made = each_house.admin.post(
        "/api/jobs", json={"kind": "errand", "priority": 3, "platform": "web", "max_attempts": 5}
    )
    assert made.status_code == 201
    assert made.headers["location"] == f"/api/jobs/{made.json()['id']}"
    job = each_house.admin.get(made.headers["location"]).json()
    assert (job["kind"], job["priority"], job["platform"]) == ("errand", 3, "web")
    assert (job["state"], job["max_attempts"]) == ("pending", 5)
    assert job["allowed"] == allowed(JobState.PENDING)
    each_house.shelf.drain()
    job = each_house.admin.get(made.headers["location"]).json()
    assert (job["state"], job["allowed"]) == ("completed", allowed(JobState.COMPLETED))


def test_the_owner_of_a_job_is_the_user_of_the_token(house: House):
    job_id = house.submit(house.member)
    assert get(house, f"/{job_id}")["owner"] == {"tenant": "default", "user": "member"}


def test_a_key_makes_a_job_only_once(each_house: House):
    ask: dict[str, Any] = {"headers": {"Idempotency-Key": "k1"}, "json": {"kind": "errand"}}
    first = each_house.admin.post("/api/jobs", **ask)
    again = each_house.admin.post("/api/jobs", **ask)
    assert (again.status_code, again.json()) == (201, first.json())
    other = each_house.admin.post(
        "/api/jobs", headers={"Idempotency-Key": "k1"}, json={"kind": "errand", "priority": 1}
    )
    assert other.status_code == 409
    assert "new key" in other.json()["remedy"]
    assert len(each_house.admin.get("/api/jobs").json()["items"]) == 1


def test_pages_of_a_thousand_jobs_have_each_job_once(each_house: House):
    from quire.model.records import Submission

    ids = each_house.shelf.app.submit_many([Submission("errand")] * 1000)
    met: list[int] = []
    cursor = None
    while True:
        params = {"limit": 130, **({"cursor": cursor} if cursor else {})}
        page = each_house.admin.get("/api/jobs", params=params).json()
        met += [job["id"] for job in page["items"]]
        # What is added meanwhile is newer than the cursor and moves no page.
        each_house.submit()
        if (cursor := page["next"]) is None:
            break
    assert met == sorted(ids, reverse=True)


def test_filters_narrow_the_list(house: House):
    mine = house.submit(house.member, platform="web", account="a1")
    other = house.submit(house.admin, platform="mail")
    house.admin.post(f"/api/jobs/{other}/stop")
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"user": "member"}, [mine]),
        ({"platform": "mail"}, [other]),
        ({"account": "a1"}, [mine]),
        ({"kind": "errand"}, [other, mine]),
        ({"kind": "errand.long"}, []),
        ({"state": "stopped"}, [other]),
        ({"state": "stopped,pending"}, [other, mine]),
        ({"state": ["stopped", "pending"], "user": "member"}, [mine]),
    ]
    for params, expected in cases:
        found = house.admin.get("/api/jobs", params=params).json()["items"]
        assert [job["id"] for job in found] == expected, params


def test_verbs_move_a_job_as_its_state_allows(house: House):
    job_id = house.submit()
    place = f"/api/jobs/{job_id}"
    stopped = house.admin.post(f"{place}/stop", json={"why": "lunch"}).json()
    assert (stopped["state"], stopped["error"]) == ("stopped", "lunch")
    refused = house.admin.post(f"{place}/stop")
    assert refused.status_code == 409
    assert "resume" in refused.json()["remedy"]
    assert house.admin.post(f"{place}/resume").json()["state"] == "pending"
    assert house.admin.post(f"{place}/priority", json={"priority": 1}).json()["priority"] == 1
    assert house.admin.delete(place).status_code == 409
    assert house.admin.post(f"{place}/cancel").json()["state"] == "cancelled"
    assert house.admin.post(f"{place}/retry", json={}).json()["state"] == "pending"
    house.shelf.drain()
    assert house.admin.delete(place).status_code == 204
    assert house.admin.get(place).status_code == 404


def test_a_job_that_has_not_changed_is_not_sent_again(house: House):
    place = f"/api/jobs/{house.submit()}"
    tag = house.admin.get(place).headers["etag"]
    same = house.admin.get(place, headers={"If-None-Match": f'"x", W/{tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    house.admin.post(f"{place}/stop")
    assert house.admin.get(place, headers={"If-None-Match": tag}).status_code == 200


def test_bulk_changes_what_matches_and_counts_it(house: House):
    ids = [house.submit(platform="web") for _ in range(3)]
    other = house.submit(platform="mail")

    def bulk(verb: str, **more: Any) -> int:
        body = {"verb": verb, "filter": {"platform": "web", **more}}
        return int(house.admin.post("/api/jobs/bulk", json=body).json()["count"])

    assert bulk("stop") == 3
    assert bulk("stop") == 0
    assert bulk("resume", state=["stopped"]) == 3
    assert bulk("cancel") == 3
    assert bulk("retry") == 3
    assert bulk("cancel") == 3
    assert bulk("delete") == 3
    assert [job["id"] for job in get(house, "")["items"]] == [other]
    assert ids


def test_events_are_paged_forward_from_the_cursor(house: House):
    job_id = house.submit()
    for _ in range(3):
        house.admin.post(f"/api/jobs/{job_id}/stop")
        house.admin.post(f"/api/jobs/{job_id}/resume")
    whole = get(house, f"/{job_id}/events")
    assert whole["next"] is None
    assert [event["name"] for event in whole["items"]] == ["job.stopped", "job.resume"] * 3
    met: list[dict[str, Any]] = []
    cursor = 0
    while True:
        page = get(house, f"/{job_id}/events", limit=4, cursor=cursor)
        met += page["items"]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert met == whole["items"]
    last = whole["items"][-1]["id"]
    assert get(house, f"/{job_id}/events", cursor=last) == {"items": [], "next": None}


def test_runs_and_tasks_of_a_job_are_listed(house: House):
    job_id = house.submit()
    house.shelf.drain()
    [task] = get(house, f"/{job_id}/tasks")["items"]
    [run] = get(house, f"/{job_id}/attempts")["items"]
    assert get(house, f"/{job_id}/attempts", task_id=task["id"])["items"] == [run]
    assert get(house, f"/{job_id}/attempts", task_id=task["id"] + 1)["items"] == []
    assert (task["state"], run["task_id"], run["outcome"]) == ("done", task["id"], "done")
    assert get(house, f"/{job_id}/explain")["code"] == "completed"
    assert get(house, f"/{job_id}/explain", task=task["id"])["job_id"] == job_id
    other = house.submit()
    wrong = house.admin.get(f"/api/jobs/{other}/explain", params={"task": task["id"]})
    assert wrong.status_code == 404


def test_a_job_of_another_tenant_is_not_there(each_house: House):
    house = each_house
    job_id = house.submit(house.foreigner)
    for verb in VERBS:
        unknown = house.admin.post(f"/api/jobs/999/{verb}")
        answer = house.admin.post(f"/api/jobs/{job_id}/{verb}")
        assert answer.status_code == unknown.status_code == 404
        assert answer.text.replace(f"job {job_id}", "N") == unknown.text.replace("job 999", "N")
    assert house.foreigner.get(f"/api/jobs/{job_id}").json()["state"] == "pending"


def test_nothing_of_another_tenant_is_listed_or_counted(each_house: House):
    house = each_house
    mine, theirs = house.submit(), house.submit(house.foreigner)
    assert [job["id"] for job in house.admin.get("/api/jobs").json()["items"]] == [mine]
    for part in PARTS:
        assert house.admin.get(f"/api/jobs/{theirs}/{part}").status_code == 404
    assert house.admin.delete(f"/api/jobs/{theirs}").status_code == 404
    urgent = house.admin.post(f"/api/jobs/{theirs}/priority", json={"priority": 1})
    assert urgent.status_code == 404
    count = house.admin.post("/api/jobs/bulk", json={"verb": "stop"}).json()["count"]
    assert count == 1
    after = house.admin.post("/api/jobs", json={"kind": "errand", "after": [theirs]})
    assert after.status_code == 404
    assert house.admin.get("/api/status").json()["jobs"]["pending"] == 0
    assert house.foreigner.get("/api/status").json()["jobs"]["pending"] == 1
    counts = house.foreigner.get("/api/scheduler/status").json()["pending_counts"]
    assert counts == [{"platform": None, "kind": "errand", "count": 1}]


BAD = {
    b"": 422,
    b"{": 422,
    b"[]": 422,
    b'{"kind": "errand"': 422,
    b'{"kind": "nowhere"}': 422,
    b'{"kind": "errand", "colour": 1}': 422,
    b'{"kind": "errand", "priority": 11}': 422,
    b'{"kind": "errand", "priority": true}': 422,
    b'{"kind": "errand", "priority": 5.5}': 422,
    b'{"kind": "errand", "cost": NaN}': 422,
    b'{"kind": "errand", "cost": 1e999}': 422,
    b'{"kind": "errand", "payload": {"x": Infinity}}': 422,
    b'{"kind": "errand", "payload": []}': 422,
    b'{"kind": "errand", "payload": {"x": "\\u0000"}}': 422,
    b'{"kind": "errand", "after": [9223372036854775808]}': 422,
    b'{"kind": "errand", "after": [0]}': 422,
    b'{"kind": "errand", "run_at": "yesterday"}': 422,
    b'{"kind": "errand", "run_at": "0001-01-01T00:00:00Z"}': 422,
    b'{"kind": "errand", "run_at": "2026-01-01T00:00:00"}': 422,
    b'{"kind": "\\ud800"}': 422,
    b'{"\\ud800": 1}': 422,
    b'{"kind": "no\\u0000op"}': 422,
    b'{"kind": "errand", "platform": ""}': 422,
    b'{"kind": "errand", "max_attempts": 0}': 422,
    b"[" * 100_000: 400,
    b"\xff\xfe": 422,
}


def test_a_body_that_is_not_accepted_says_what_is_wrong(each_house: House):
    json = {"Content-Type": "application/json"}
    for body, status in BAD.items():
        answer = each_house.admin.post("/api/jobs", content=body, headers=json)
        assert answer.status_code == status, (body[:50], answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
    assert each_house.admin.get("/api/jobs").json()["items"] == []


def test_the_former_name_of_max_attempts_is_named_in_the_error(house: House):
    answer = house.admin.post("/api/jobs", json={"kind": "errand", "max_retries": 2})
    assert answer.status_code == 422
    assert "body: max_retries was replaced by max_attempts" in answer.json()["detail"]


BAD_QUERIES = (
    "limit=0", "limit=1001", "limit=x", "cursor=-1", "cursor=9223372036854775808", "cursor=x",
    "state=lost", "kind=%00", "user=%00", "account=" + "x" * 201,
)  # fmt: skip
BAD_IDS = ("abc", "0", "-1", "1.5", "9223372036854775808", "1" * 5000)


def test_a_query_or_an_id_that_is_not_accepted_is_refused(each_house: House):
    places = [f"?{query}" for query in BAD_QUERIES] + [f"/{name}" for name in BAD_IDS]
    for place in places:
        answer = each_house.admin.get(f"/api/jobs{place}")
        assert (answer.status_code, answer.json()["status"]) == (422, 422), place


def test_half_a_surrogate_pair_in_a_payload_comes_back(house: House):
    body = b'{"kind": "errand", "payload": {"x": "\\ud800"}}'
    made = house.admin.post("/api/jobs", content=body, headers={"Content-Type": "application/json"})
    assert made.status_code == 201
    answer = house.admin.get(f"/api/jobs/{made.json()['id']}")
    assert answer.status_code == 200
    assert answer.json()["payload"] == {"x": "\ud800"}


@pytest.mark.parametrize("is_told", [True, False])
def test_a_body_above_the_limit_is_refused(house: House, is_told: bool):
    piece = b" " * 100_000
    content: Any = piece * 12 if is_told else iter([piece] * 12)
    answer = house.admin.post(
        "/api/jobs", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert f"{body_limits.MAX_BYTES:,}" in answer.json()["detail"]


def test_a_kind_is_paused_and_goes_on(house: House):
    kinds = {each["name"]: each for each in house.viewer.get("/api/kinds").json()["items"]}
    assert kinds["errand"]["paused_at"] is None
    answer = house.operator.post("/api/kinds/errand/pause").json()
    assert answer == {"name": "errand", "paused": True, "changed": True}
    assert house.operator.post("/api/kinds/errand/pause").json()["changed"] is False
    job_id = house.submit()
    assert house.shelf.drain() == []
    assert house.operator.post("/api/kinds/errand/unpause").json()["changed"] is True
    house.shelf.drain()
    assert get(house, f"/{job_id}")["state"] == "completed"
    assert house.operator.post("/api/kinds/nowhere/pause").status_code == 422
