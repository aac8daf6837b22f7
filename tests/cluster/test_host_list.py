"""Slurm's lists of hosts, against names written by hand as `scontrol show hostnames` prints them."""

from __future__ import annotations

import pytest

from meshtf.cluster.host_list import HostList, HostListFault

LISTS = {
    "n1": "n1",
    "localhost": "localhost",
    "n1,n2": "n1 n2",
    "n2,n1,n2": "n2 n1 n2",
    "n[1]": "n1",
    "n[1-3]": "n1 n2 n3",
    "n[3-3]": "n3",
    "n[1,3]": "n1 n3",
    "n[3,1]": "n3 n1",
    "n[1-2,5,7-8]": "n1 n2 n5 n7 n8",
    "n[2,10],m1": "n2 n10 m1",
    "m1,n[2,10]": "m1 n2 n10",
    "n[1-2],m[3-4]": "n1 n2 m3 m4",
    "n[8-11]": "n8 n9 n10 n11",
    "n[08-11]": "n08 n09 n10 n11",
    "n[098-101]": "n098 n099 n100 n101",
    "n[001-003]": "n001 n002 n003",
    "n[00]": "n00",
    "n[0-2]": "n0 n1 n2",
    "n[1,01,001]": "n1 n01 n001",
    "n[9-10,009-010]": "n9 n10 n009 n010",
    "n[1-2]-ib": "n1-ib n2-ib",
    "node-[001-003].cluster.local": "node-001.cluster.local node-002.cluster.local node-003.cluster.local",
    "rack[0-1]n[2-3]": "rack0n2 rack0n3 rack1n2 rack1n3",
    "rack[0-1]n[2-3],login1": "rack0n2 rack0n3 rack1n2 rack1n3 login1",
    "r[1,3]c[0-1]s": "r1c0s r1c1s r3c0s r3c1s",
    "r[0-1]c[0-1]s[0-1]": "r0c0s0 r0c0s1 r0c1s0 r0c1s1 r1c0s0 r1c0s1 r1c1s0 r1c1s1",
    "r[00-01]n[9-10]": "r00n9 r00n10 r01n9 r01n10",
    "a[1-2][3-4]": "a13 a14 a23 a24",
    "[1-2]": "1 2",
    "[1-2]n": "1n 2n",
    "10.0.0.[1-2]": "10.0.0.1 10.0.0.2",
    "gpu-a100-[1-2]": "gpu-a100-1 gpu-a100-2",
    "ip-10-0-1-[12,14]": "ip-10-0-1-12 ip-10-0-1-14",
    "n-1,n-2": "n-1 n-2",
    "n_[1-2]_x": "n_1_x n_2_x",
    "nid[000012-000013]": "nid000012 nid000013",
    "c1-[1-2],c2-[1-2]-ib,d": "c1-1 c1-2 c2-1-ib c2-2-ib d",
    "N1,n1": "N1 n1",
    "ec2-dy-p4d-[1-2],ec2-st-p4d-1": "ec2-dy-p4d-1 ec2-dy-p4d-2 ec2-st-p4d-1",
    "n[4294967296-4294967297]": "n4294967296 n4294967297",
    "u12[3-4].x,u[12-13]y": "u123.x u124.x u12y u13y",
}


def test_lists() -> None:
    assert len(LISTS) > 40
    for text, names in LISTS.items():
        hosts = HostList.from_text(text)
        assert list(hosts) == names.split(), text
        assert hosts.first == names.split()[0], text


def test_the_first_of_a_trillion() -> None:
    assert HostList.from_text("n[0-999999]m[0-999999]").first == "n0m0"


@pytest.mark.parametrize(("text", "why", "at"), [
    ("", "the name of a host is missing", 0),
    ("n1,", "the name of a host is missing", 3),
    ("n1,,n2", "the name of a host is missing", 3),
    ("n1, n2", "a name has no spaces", 3),
    ("n[1-2", "a bracket is not closed", 1),
    ("n1]", "a closing bracket has no opening bracket", 2),
    ("n[]", "a number is missing", 2),
    ("n[1,]", "a number is missing", 4),
    ("n[1-]", "a number is missing", 4),
    ("n[-1]", "a number is missing", 2),
    ("n[1--2]", "a number is missing", 4),
    ("n[a-b]", "a number is missing", 2),
    ("n[٣]", "a number is missing", 2),
    ("n[3-1]", "a range goes up, and 1 is less than 3", 4),
    ("n[0-8:2]", "brackets have numbers and ranges of numbers", 5),
    ("bgl[000x133]", "brackets have numbers and ranges of numbers", 7),
    ("n[1[2]]", "brackets have numbers and ranges of numbers", 3),
    ("r[1-2]n[3,x]", "a number is missing", 10),
])  # fmt: skip
def test_what_is_no_list_has_a_caret_under_the_place(text: str, why: str, at: int) -> None:
    with pytest.raises(HostListFault) as raised:
        HostList.from_text(text)
    first, shown, caret = str(raised.value).split("\n")
    assert first.startswith(f"{why}")
    assert "as in rack[0-1]n[02-10,12]-ib,login1" in first
    assert (shown, caret) == (f"    {text}", " " * (4 + at) + "^")
