"""Hard models with control flow: branches, loops and scans, what they capture and what they hand out."""

from __future__ import annotations

import numpy as np
from hard_case import Case, W, X, c, i, n
from onnx import numpy_helper

LOOP = "k = Constant<value_int=3>() t = Constant<value = bool {1}>()"

CASES: dict[str, Case] = {
    "scan_two_states_reversed": Case(
        "a Scan with two states and two scanned inputs, one of them backwards, and outputs in both directions",
        """g (float[5,8] x, float[5,8] z, float[8] h) => (float[8] p, float[8] q, float[5,8] s, float[5,8] r) {
           p, q, s, r = Scan<num_scan_inputs = 2, scan_input_directions = [0, 1], scan_output_directions = [1, 0],
             body = b (float[8] a, float[8] c, float[8] u, float[8] v) => (float[8] a2, float[8] c2, float[8] o1, float[8] o2) {
               m = MatMul(a, W) a2 = Add(m, u) w = Mul(c, v) c2 = Tanh(w) o1 = Sub(a2, c2) o2 = Identity(c2) }>(h, h, x, z) }""",
        {"x": n(5, 8), "z": n(5, 8), "h": n(8)},
        W,
    ),
    "scan_axes": Case(
        "a Scan along the second axis",
        """g (float[4,5,8] x, float[4,8] h) => (float[4,8] y, float[4,5,8] s) {
           y, s = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
             body = b (float[4,8] a, float[4,8] u) => (float[4,8] a2, float[4,8] o) { m = MatMul(a, W) a2 = Add(m, u) o = Relu(a2)
             }>(h, x) }""",
        {"x": n(4, 5, 8), "h": n(4, 8)},
        W,
    ),
    "scan_opset_8": Case(
        "the Scan of opset 8 has an optional first input of sequence lengths",
        """g (float[2,5,8] x, float[2,8] h) => (float[2,8] y, float[2,5,8] s) {
           y, s = Scan<num_scan_inputs = 1,
             body = b (float[8] a, float[8] u) => (float[8] a2, float[8] o) { m = MatMul(a, W) a2 = Add(m, u) o = Relu(a2) }>( , h, x)
             }""",
        {"x": n(2, 5, 8), "h": n(2, 8)},
        W,
        opset=8,
    ),
    "while_loop_float_condition": Case(
        "a Loop that ends when a float state passes a bound",
        """g (float[4,8] x) => (float[4,8] y, float s) { k = Constant<value_int=50>() t = Constant<value = bool {1}>() z =
           Constant<value_float=0.0>()
           y, s = Loop(k, t, x, z) <body = b (int64 n, bool c, float[4,8] h, float e) => (bool d, float[4,8] o, float f)
             { m = MatMul(h, W) o = Tanh(m) q = Mul(o, o) a = ReduceMean<keepdims=0>(q) one = Constant<value_float=1.0>() u = Add(e, one)
                seven = Constant<value_float=6.5>() d = Less(u, seven) f = Identity(u) }> }""",
        X,
        W,
    ),
    "loop_without_condition": Case(
        "a Loop whose trip count or condition is left out",
        """g (float[4,8] x) => (float[4,8] y) { k = Constant<value_int=3>()
           y = Loop(k, , x) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o) { d = Identity(c) m = MatMul(h, W) o =
           Tanh(m) }> }""",
        X,
        W,
    ),
    "loop_without_trips": Case(
        "a Loop that runs zero times hands its input on",
        """g (float[4,8] x) => (float[4,8] y, float[M,4,8] s) { k = Constant<value_int=0>() a = MatMul(x, W)
           y, s = Loop(k, , a) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o, float[4,8] r)
             { d = Identity(c) o = MatMul(h, W) r = Relu(o) }> }""",
        X,
        W,
        heavy=2,
    ),
    "state_handed_on_unchanged": Case(
        "a body whose output is its input, a captured weight or a captured tensor",
        f"""g (float[4,8] x) => (float[4,8] y, float[8,8] v, float[3,4,8] s) {{ {LOOP} a = MatMul(x, W)
           y, v, s = Loop(k, t, x, W) <body = b (int64 n, bool c, float[4,8] h, float[8,8] w) => (bool d, float[4,8] h, float[8,8] w2,
           float[4,8] o)
             {{ d = Identity(c) w2 = Identity(w) o = MatMul(h, w) }}> }}""",
        X,
        W,
        heavy=2,
    ),
    "branch_output_is_captured": Case(
        "a branch that gives back what it captured, and another that gives back a weight of its own",
        """g (float[8,8] x, bool c) => (float[8,8] y) { a = MatMul(x, W)
           b = If(c) <then_branch = t () => (float[8,8] u) { u = Identity(a) },
                      else_branch = e () => (float[8,8] V) <float[8,8] V> { }> y = MatMul(b, W) }""",
        {"x": n(8, 8), "c": c(True, np.bool_)},
        W,
        heavy=2,
        change=lambda model: (
            model.graph.node[1].attribute[1].g.initializer.append(numpy_helper.from_array(np.eye(8, dtype=np.float32), "V"))
        ),
    ),
    "nested_ifs": Case(
        "three Ifs in one another, each reading tensors of every level",
        """g (float[4,8] x, bool c, bool d) => (float[4,8] y) { a = MatMul(x, W)
           y = If(c) <then_branch = t () => (float[4,8] u) { r = Relu(a)
                 u = If(d) <then_branch = t2 () => (float[4,8] u2) { s = Add(r, a) u2 = MatMul(s, W) },
                            else_branch = e2 () => (float[4,8] v2) { n = Not(c)
                   v2 = If(n) <then_branch = t3 () => (float[4,8] u3) { u3 = Sub(r, x) }, else_branch = e3 () => (float[4,8] v3) { v3 =
                   MatMul(r, W) }> }> },
                      else_branch = e () => (float[4,8] v) { v = Neg(a) }> }""",
        X | {"c": c(True, np.bool_), "d": c(False, np.bool_)},
        W,
        heavy=3,
    ),
    "loop_in_scan_in_if": Case(
        "a Loop in a Scan in a branch, with weights captured through all of them",
        f"""g (float[5,8] x, float[8] h, bool c) => (float[8] y) {{ {LOOP}
           y = If(c) <then_branch = p () => (float[8] u) {{
               u = Scan<num_scan_inputs = 1, body = b (float[8] a, float[8] r) => (float[8] a2) {{
                 m = Add(a, r) a2 = Loop(k, t, m) <body = lb (int64 n, bool z, float[8] q) => (bool z2, float[8] q2)
                   {{ z2 = Identity(z) w = MatMul(q, W) q2 = Tanh(w) }}> }}>(h, x) }},
             else_branch = e () => (float[8] v) {{ v = MatMul(h, W) }}> }}""",
        {"x": n(5, 8), "h": n(8), "c": c(True, np.bool_)},
        W,
        heavy=2,
    ),
    "half_state": Case(
        "a Loop whose state is float16 already",
        f"""g (float[4,8] x) => (float[4,8] y) {{ {LOOP} a = Cast<to=10>(x)
           r = Loop(k, t, a) <body = b (int64 n, bool c, float16[4,8] h) => (bool d, float16[4,8] o)
             {{ d = Identity(c) f = Cast<to=1>(h) m = MatMul(f, W) g = Tanh(m) o = Cast<to=10>(g) }}> y = Cast<to=1>(r) }}""",
        X,
        W,
    ),
    "counter_as_float": Case(
        "the counter of a Loop scales what it computes",
        f"""g (float[4,8] x) => (float[3,4,8] y) {{ {LOOP}
           u, y = Loop(k, t, x) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o, float[4,8] s)
             {{ d = Identity(c) f = Cast<to=1>(n) m = MatMul(h, W) g = Mul(m, f) o = Add(g, h) s = Div(o, eight) }}> }}""",
        X,
        W | {"eight": c(8.0)},
    ),
    "loop_accumulates_past_2048": Case(
        "a float state counts to 3000 in steps of one",
        """g (float[4,8] x) => (float[4,8] y, float s) { k = Constant<value_int=3000>() z = Constant<value_float=0.0>()
           s = Loop(k, , z) <body = b (int64 n, bool c, float e) => (bool d, float f)
             { d = Identity(c) one = Constant<value_float=1.0>() f = Add(e, one) }> q = Div(s, s) a = Mul(x, q) y = MatMul(a, W) }""",
        X,
        W,
        tolerance=0.004,
    ),
    "loop_gathers_from_a_table": Case(
        "a Loop that decodes: argmax of a captured projection chooses the next row of a table",
        """g (int64[2] first) => (int64[6,2] ids, float[6,2,16] logits) { k = Constant<value_int=6>()
           l, ids, logits = Loop(k, , first) <body = b (int64 n, bool c, int64[2] p) => (bool d, int64[2] q, int64[2] o, float[2,16] s)
             { d = Identity(c) e = Gather(table, p) m = MatMul(e, P) s = Add(m, spread) q = ArgMax<axis=1, keepdims=0>(s) o =
             Identity(q) }> }""",
        {"first": i(0, 16, 2)},
        {"table": n(16, 8), "P": n(8, 16, std=0.01), "spread": c(np.random.default_rng(5).permutation(16) * 3.0)},
    ),
    "different_states": Case(
        "a Loop whose states are an int, a bool, a float and a string",
        """g (float[4,8] x) => (float[4,8] y, int64 q) { k = Constant<value_int=3>() z = Constant<value_int=0>()
           w0 = Constant<value_strings=["a"]>()
           q, y, w = Loop(k, , z, x, w0) <body = b (int64 n, bool c, int64 i, float[4,8] h, string[1] p) => (bool d, int64 i2,
           float[4,8] o, string[1] p2)
             { d = Identity(c) i2 = Add(i, n) m = MatMul(h, W) o = Tanh(m) p2 = Identity(p) }> }""",
        X,
        W,
    ),
    "if_outputs_of_different_kinds": Case(
        "an If with three outputs, of which one is an integer and one is used by nobody",
        """g (float[4,8] x, bool c) => (float[4,8] y, int64[4] k) {
           a, k, z = If(c) <then_branch = t () => (float[4,8] u, int64[4] uk, float[4,8] uz)
                     { u = MatMul(x, W) uk = ArgMax<axis=1, keepdims=0>(x) uz = Relu(u) },
                   else_branch = e () => (float[4,8] v, int64[4] vk, float[4,8] vz)
                     { v = Neg(x) vk = ArgMin<axis=1, keepdims=0>(x) vz = Identity(v) }> y = MatMul(a, W) }""",
        {"x": lambda rng: rng.permuted(np.tile(np.arange(8, dtype=np.float32), (4, 1)), axis=1), "c": c(True, np.bool_)},
        W,
        heavy=2,
    ),
    "branches_of_different_shape": Case(
        "branches that give tensors of different rank",
        """g (float[4,8] x, bool c) => (float[4,8] y) { a = MatMul(x, W)
           b = If(c) <then_branch = t () => (float[1,4,8] u) { u = Unsqueeze(a, zero) }, else_branch = e () => (float[4,8] v) { v =
           Relu(a) }>
           d = Reshape(b, shape) y = MatMul(d, W) }""",
        X | {"c": c(True, np.bool_)},
        W | {"zero": c([0], np.int64), "shape": c([4, 8], np.int64)},
        heavy=2,
    ),
    "same_names_in_all_bodies": Case(
        "two Loops whose bodies use the same names, and node names that repeat",
        f"""g (float[4,8] x) => (float[4,8] y) {{ {LOOP}
           r = Loop(k, t, x) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o) {{ d = Identity(c) m = MatMul(h, W) o
           = Tanh(m) }}>
           y = Loop(k, t, r) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o) {{ d = Identity(c) m = MatMul(h, W) o
           = Relu(m) }}> }}""",
        X,
        W,
        heavy=2,
    ),
    "captured_input": Case(
        "a body that reads a graph input, which is also a graph output's only source",
        f"""g (float[4,8] x, float[8,8] V) => (float[4,8] y, float[4,8] z) {{ {LOOP} z = Identity(x)
           y = Loop(k, t, x) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o)
             {{ d = Identity(c) m = MatMul(h, V) p = Add(m, x) o = Tanh(p) }}> }}""",
        X | {"V": n(8, 8, std=0.3)},
    ),
    "weights_in_the_body": Case(
        "weights that lie in the body, with the name that a weight of the graph after it has",
        f"""g (float[4,8] x) => (float[4,8] y) {{ {LOOP}
           r = Loop(k, t, x) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o)
             <float[8] bias = {{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}}> {{ d = Identity(c) m = MatMul(h, W) p = Add(m, bias) o =
             Tanh(p) }}>
           y = MatMul(r, W) }}""",
        X,
        W,
        heavy=2,
    ),
    "lstm_cell_by_hand": Case(
        "an LSTM written out in a Scan: gates by Split, two states that stay in range",
        """g (float[7,2,4] x, float[2,6] h, float[2,6] k) => (float[2,6] hn, float[2,6] kn, float[7,2,6] ys) {
           hn, kn, ys = Scan<num_scan_inputs = 1, body = b (float[2,6] a, float[2,6] s, float[2,4] u) => (float[2,6] a2, float[2,6] s2,
           float[2,6] o) {
               p = MatMul(u, K) q = MatMul(a, R) z = Add(p, q) zi, zf, zg, zo = Split<axis=1>(z, sizes) gi = Sigmoid(zi) gf =
               Sigmoid(zf) gg = Tanh(zg)
               go = Sigmoid(zo) k1 = Mul(gf, s) k2 = Mul(gi, gg) s2 = Add(k1, k2) th = Tanh(s2) a2 = Mul(go, th) o = Identity(a2) }>(h,
               k, x) }""",
        {"x": n(7, 2, 4), "h": n(2, 6), "k": n(2, 6)},
        {"K": n(4, 24, std=0.4), "R": n(6, 24, std=0.4), "sizes": c([6, 6, 6, 6], np.int64)},
        heavy=2,
    ),
}
