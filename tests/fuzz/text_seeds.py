# SPDX-License-Identifier: Apache-2.0
"""What people write, or could: tables of a step and of its costs, and settings."""

SCHEDULE = ("role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,takes,frees,"
            "scratch,needs,waits\n")


def schedule_seeds():
    rows = ["Forward,0,,0,0,0,0,100,0,0,,", "Backward,0,,0,0,0,0,0,100,0,,0",
            "Reduce,1,dp:2x1,,,0;loss,400,0,0,0,,1", "Update,0,,0,,0,400,0,0,0,,2",
            "Commit,0,dp:2x1,,,0,0,0,0,0,,3"]
    yield "step", (SCHEDULE + "".join(f"0,0-1,1,{i},{row}\n"
                                      for i, row in enumerate(rows))).encode()
    yield "times", (SCHEDULE.strip() + ",start_us,end_us\n0,0,1,0,Commit,0,,,,,0,0,0,0,,,"
                    "0.000,1.500\n").encode()
    yield "ranks", (SCHEDULE + "".join(f"{i},0-1048575,1,0,Commit,0,,,,,0,0,0,0,,\n"
                                       for i in range(5))).encode()
    yield "slices", (SCHEDULE + "0,0-1048575,16777216,0,Commit,0,,,,,0,0,0,0,,\n").encode()
    yield "header", SCHEDULE.encode()
    yield "numbers", (SCHEDULE + "0,0,1,0,Commit,0,,1073741824,1073741824,1073741824,"
                      "9999999999999999999,0,0,0,,\n").encode()


def costs_seeds():
    head = "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n"
    yield "table", (head + "samples,8,,,,\nforward,0,1.5,2.5,,\nbackward,0,3,4,,\n"
                    "update,,1,,10,\nlink,dp,5,,12.5,1\nlink,*,5,,1,0\n").encode()
    yield "blocks", (head + "forward,1000000,1,1,,\n").encode()
    yield "numbers", (head + "forward,0,1e308,inf,,\nlink,dp/Gather,nan,,0,2\n").encode()
    yield "header", head.encode()
    yield "cluster", (head + "ranks_per_node,4,,,,\nbackward_input,0,1,2,,\n"
                      "backward_weight,0,0,0,,\nlink,0>1,2,,20,false\n"
                      "link,*/AllReduce@nodes,9,,,true\nlink,pp@nodes,9,,1,\n").encode()
    yield "links", (head + "update,,1,,,\nlink,dp@nodes/Gather,1,,1,\n").encode()


def aliases(levels=10, width=9):
    lines = ["a0: &a0 {" + ",".join(f"{chr(97 + i)}: 1" for i in range(width)) + "}"]
    for n in range(1, levels):
        lines.append(f"a{n}: &a{n} {{" + ",".join(
            f"{chr(97 + i)}: *a{n - 1}" for i in range(width)) + "}")
    return "\n".join(lines).encode() + b"\n"


def yaml_seeds():
    yield "settings", b"batch: 64\noptim:\n  lr: 0.1\n  name: sgd\nblocks: [1, 2]\n"
    yield "aliases", aliases()
    yield "alias-in-itself", b"a: &a {b: *a}\n"
    yield "long-alias", b"a: &a " + b"x" * 2000 + b"\n" + b"".join(
        b"b%d: *a\n" % i for i in range(600))
    yield "deep", b"[" * 1000
    yield "documents", b"a: 1\n---\nb: 2\n"
    yield "twice", b"a.b: 1\na:\n  b: 2\n"
    yield "tabs", b"a:\t- 1\n\t\tb: |\n  text\n"
