"""TensorRT-LLM reads each batch size's draft length out of what is exported."""

from __future__ import annotations

import pytest
import yaml

from dspark.analysis.export.tensorrt_llm import notes, speculative_config, to_yaml
from dspark.analysis.schedule import Schedule
from dspark.policies.batch_table import BatchTable
from tests.analysis.export.schedules import depth_of, random_schedules, sizes


@pytest.mark.parametrize("schedule", random_schedules(falling=True), ids=str)
def test_the_rules_hold_and_give_the_depths_back(schedule: Schedule) -> None:
    config = yaml.safe_load(to_yaml(speculative_config(schedule)))["speculative_config"]
    lengths, largest = config["draft_len_schedule"], config["max_draft_len"]
    assert all(type(size) is int for size in lengths)  # JSON would have made texts of them
    assert list(lengths) == sorted(lengths)
    assert largest > 0
    assert lengths[min(lengths)] == largest == max(lengths.values())
    # our policy reads this syntax too, and says what holds past the last key
    policy = BatchTable(draft_len_schedule=lengths, depth=largest)
    assert [policy.depth_at(size) for size in sizes(schedule)] == [
        depth_of(schedule, size) for size in sizes(schedule)
    ]
    _, last, depth = schedule.depths[-1]
    assert policy.depth_at(last + 1) == 0
    assert any("drafts nothing" in note for note in notes(schedule)) == (depth > 0)


def test_the_documented_example() -> None:
    schedule = Schedule(depths=((1, 4, 4), (5, 8, 2), (9, 32, 1)))
    assert to_yaml(speculative_config(schedule)) == (
        "speculative_config:\n  max_draft_len: 4\n  draft_len_schedule: {4: 4, 8: 2, 32: 1}\n"
    )


@pytest.mark.parametrize(
    ("depths", "message"),
    [
        (((1, 4, 0),), "needs max_draft_len > 0, and every depth of the schedule is 0"),
        (
            ((1, 4, 2), (5, 8, 4)),
            r"the largest depth at the smallest batch sizes .* got 2 in \[1, 4, 2\] and 4 in \[5, 8, 4\]",
        ),
    ],
)
def test_what_it_cannot_run_is_refused(depths: tuple[tuple[int, int, int], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        speculative_config(Schedule(depths=depths))
