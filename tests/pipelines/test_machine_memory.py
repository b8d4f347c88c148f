"""How much memory is free: what the machine has, or what the groups leave that a process is in."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.machine_memory import free_bytes, usable

GIB = 1 << 30
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these files are Linux's")


def machine(folder: Path, groups: str, **files: str) -> int | None:
    """What is free on a machine with 8 GiB available whose cgroups have these files; `__` parts folders."""
    proc, cgroups = folder / "proc", folder / "cgroups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 16777216 kB\nMemAvailable: {8 << 20} kB\n")
    (proc / "self" / "cgroup").write_text(groups)
    for name, content in files.items():
        place = cgroups.joinpath(*name.split("__")[:-1])
        place.mkdir(parents=True, exist_ok=True)
        (place / name.split("__")[-1].replace("_of_", ".")).write_text(content)
    return free_bytes(proc, cgroups)


def test_without_limits_it_is_what_the_machine_has_available(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/\n", memory_of_max="max\n", memory_of_current="5\n") == 8 * GIB


def test_the_narrowest_group_around_a_process_counts_and_its_file_pages_are_free(tmp_path: Path) -> None:
    assert (
        machine(
            tmp_path,
            "0::/outer/inner\n",
            outer__memory_of_max=f"{4 * GIB}",
            outer__memory_of_current=f"{2 * GIB}",
            outer__memory_of_stat=f"anon 7\ninactive_file {GIB}\n",
            outer__inner__memory_of_max="max",
            outer__inner__memory_of_current="1",
        )
        == 3 * GIB
    )


def test_a_container_whose_own_group_is_the_root_is_held_to_it(tmp_path: Path) -> None:
    free = machine(tmp_path, "0::/docker/abc\n", memory_of_max=f"{2 * GIB}", memory_of_current=f"{GIB}")
    assert free == GIB


def test_the_first_version_of_groups_is_read_too(tmp_path: Path) -> None:
    limits = {"memory__memory_of_limit_in_bytes": f"{3 * GIB}", "memory__memory_of_usage_in_bytes": f"{GIB}"}
    assert machine(tmp_path, "4:memory:/\n3:cpu:/\n", **limits) == 2 * GIB


def test_a_group_that_is_over_its_limit_has_nothing_free(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/\n", memory_of_max="10", memory_of_current="20") == 0


def test_a_system_that_does_not_tell_is_not_bounded(tmp_path: Path) -> None:
    assert free_bytes(tmp_path, tmp_path) is None


@given(free=st.integers(0, 1 << 50), more=st.integers(0, 1 << 50))
def test_some_of_it_is_kept_back_and_more_never_leaves_less(free: int, more: int) -> None:
    assert 0 <= usable(free) <= free
    assert usable(free) <= usable(free + more)
    assert free - usable(free) <= GIB
