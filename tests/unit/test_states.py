"""The two state machines, as data."""

from quire.model.states import (
    JOB_ACTIVE,
    JOB_DELETABLE,
    JOB_MOVES,
    TASK_FINAL,
    TASK_MOVES,
    TASK_OPEN,
    JobState,
    TaskState,
    allowed,
    chart,
)


def reachable(moves, start):
    found, frontier = {start}, [start]
    while frontier:
        state = frontier.pop()
        for move in moves.values():
            if state in move.sources and move.target not in found:
                found.add(move.target)
                frontier.append(move.target)
    return found


def test_every_state_of_a_task_is_open_or_final():
    assert set(TASK_OPEN) | set(TASK_FINAL) == set(TaskState)
    assert not set(TASK_OPEN) & set(TASK_FINAL)


def test_every_state_can_be_reached():
    assert reachable(TASK_MOVES, "blocked") == set(TaskState)
    assert reachable(JOB_MOVES, "pending") == set(JobState)


def test_from_every_open_state_a_task_can_end():
    for state in TASK_OPEN:
        assert reachable(TASK_MOVES, state) & set(TASK_FINAL)


def test_a_task_that_is_done_never_moves_again():
    assert not any("done" in move.sources for move in TASK_MOVES.values())


def test_only_running_tasks_make_fenced_moves():
    fenced = {name for name, move in TASK_MOVES.items() if move.fenced}
    assert fenced == {"finish", "skip", "split", "quarantine", "retry", "return", "fail", "lose"}
    assert all(TASK_MOVES[name].sources == {"running"} for name in fenced)


def test_moves_name_only_known_states():
    for moves, states in ((TASK_MOVES, TaskState), (JOB_MOVES, JobState)):
        for move in moves.values():
            assert {*move.sources, move.target} <= set(states)


def test_a_person_may_do_what_the_state_allows():
    assert allowed("pending") == allowed("running") == ["stop", "cancel"]
    assert allowed("stopped") == ["cancel", "resume", "retry", "delete"]
    assert allowed("failed") == ["resume", "retry", "delete"]
    assert allowed("cancelled") == ["retry", "delete"]
    assert allowed("completed") == ["delete"]


def test_active_jobs_cannot_be_deleted():
    assert set(JOB_ACTIVE) | set(JOB_DELETABLE) == set(JobState)
    assert not set(JOB_ACTIVE) & set(JOB_DELETABLE)


def test_the_chart_has_a_line_for_every_move_and_source():
    lines = chart(TASK_MOVES).splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    ready --> running: claim" in lines
    assert len(lines) == 1 + sum(len(move.sources) for move in TASK_MOVES.values())
