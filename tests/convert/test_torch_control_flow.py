"""Branches and loops of torch.export: the heavy operators inside become half, what enters and leaves stays float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import mplint  # noqa: E402


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, flow: Callable[..., object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other, self.head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
        self.flow = flow

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.head(self.flow(self, x))


def branches(net, x):  # type: ignore[no-untyped-def]
    return torch.cond(x.sum() > 0, lambda v: torch.relu(net.one(v)), lambda v: torch.tanh(net.other(v)), (x,))


def loop(net, x):  # type: ignore[no-untyped-def]
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda at, v: at < 3, lambda at, v: (at + 1, torch.tanh(net.one(v))), (torch.tensor(0), x))[1]


def scanned(net, x):  # type: ignore[no-untyped-def]
    from torch._higher_order_ops.scan import scan

    def step(state, v):  # type: ignore[no-untyped-def]
        new = torch.tanh(net.one(v) + state)
        return new, new * 1.0

    return scan(step, torch.zeros_like(x[0]), x, dim=0)[1]


def loop_with_branches(net, x):  # type: ignore[no-untyped-def]
    from torch._higher_order_ops.while_loop import while_loop

    def body(at, v):  # type: ignore[no-untyped-def]
        return at + 1, torch.cond(v.square().sum() >= 0, lambda v: torch.tanh(net.one(v)), lambda v: torch.sigmoid(net.other(v)), (v,))

    return while_loop(lambda at, v: at < 3, body, (torch.tensor(0), x))[1]


def large_in_a_branch(net, x):  # type: ignore[no-untyped-def]
    return torch.cond(x.square().sum() >= 0, lambda v: net.one(v * 2e4) / 3e4 + v, lambda v: v * 1.0, (x,))


def large_in_a_loop(net, x):  # type: ignore[no-untyped-def]
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda at, v: at < 3, lambda at, v: (at + 1, net.one(v * 2e4) / 3e4 + v), (torch.tensor(0), x))[1]


def one_large_one_not(net, x):  # type: ignore[no-untyped-def]
    from torch._higher_order_ops.while_loop import while_loop

    def body(at, v):  # type: ignore[no-untyped-def]
        return at + 1, net.one(v * 2e4) / 3e4 + torch.tanh(net.other(v))

    return while_loop(lambda at, v: at < 3, body, (torch.tensor(0), x))[1]


def products(net, x):  # type: ignore[no-untyped-def]
    return torch.cond(x.square().sum() >= 0, lambda v: torch.mm(v, net.one.weight), lambda v: v * 1.0, (x,))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("flow", "shape", "heavy"), [(branches, (4, 16), 3), (loop, (4, 16), 2), (scanned, (5, 4, 16), 2)])
def test_what_is_heavy_in_a_body_is_half(flow: Callable[..., object], shape: tuple[int, ...], heavy: int, tmp_path: object) -> None:
    net, x = Net(flow).eval(), torch.randn(shape)
    np.savez(f"{tmp_path}/0.npz", x=x.numpy())
    np.savez(f"{tmp_path}/1.npz", x=-x.numpy())  # the other branch
    program = torch.export.export(net, (x,))
    result = mplint.convert(program, calibration=[str(tmp_path)])
    assert result.proven and (result.heavy_half, result.heavy) == (heavy, heavy), result.kept
    target = f"{tmp_path}/b.pt2"
    result.save(target)
    made = torch.export.load(target)
    inner = [module for module in made.graph_module.modules() if module is not made.graph_module]
    linears = [node for module in inner for node in module.graph.nodes if "linear" in str(node.target)]
    assert linears and all(node.meta["val"].dtype == torch.float16 for node in linears)
    for sign in (1, -1):  # both branches
        expected, got = net(sign * x), made.module()(sign * x)
        assert got.dtype == torch.float32 and float((got - expected).abs().max()) < 0.02 * float(expected.abs().max())


@pytest.mark.filterwarnings("ignore")
def test_a_branch_that_no_sample_takes_stays_float32(tmp_path: object) -> None:
    x = torch.rand(4, 16)
    np.savez(f"{tmp_path}/0.npz", x=x.numpy())
    result = mplint.convert(torch.export.export(Net(branches).eval(), (x,)), calibration=[str(tmp_path)])
    assert result.proven and (result.heavy_half, result.heavy) == (2, 3)
    assert ("false_graph_0.linear", "no sample runs it") in result.kept


@pytest.mark.filterwarnings("ignore")
def test_a_branch_in_a_loop_that_no_sample_takes_stays_float32() -> None:
    program = torch.export.export(Net(loop_with_branches).eval(), (torch.rand(4, 16),))
    result = mplint.convert(program)
    assert result.proven and (result.heavy_half, result.heavy) == (2, 3)
    assert ("while_loop_body_graph_0.false_graph_0.linear", "no sample runs it") in result.kept


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("flow", [large_in_a_branch, large_in_a_loop])
def test_what_comes_near_the_range_in_a_body_stays_float32(flow: Callable[..., object]) -> None:
    net, x = Net(flow).eval(), torch.randn(4, 16)
    result = mplint.convert(torch.export.export(net, (x,)))
    assert result.proven and (result.heavy_half, result.heavy) == (1, 2)
    assert any("linear" in name and "beyond the 65504 of float16" in reason for name, reason in result.kept), result.kept


@pytest.mark.filterwarnings("ignore")
def test_one_operator_of_a_body_stays_float32_and_the_other_becomes_half() -> None:
    net, x = Net(one_large_one_not).eval(), torch.randn(4, 16)
    result = mplint.convert(torch.export.export(net, (x,)))
    assert result.proven and (result.heavy_half, result.heavy) == (2, 3)


@pytest.mark.filterwarnings("ignore")
def test_keep_finds_what_only_a_body_has() -> None:
    result = mplint.convert(torch.export.export(Net(products).eval(), (torch.randn(4, 16),)), keep=["mm"])
    assert (result.heavy_half, result.heavy) == (1, 2)


@pytest.mark.filterwarnings("ignore")
def test_what_is_kept_in_a_body_stays_float32() -> None:
    result = mplint.convert(torch.export.export(Net(branches).eval(), (torch.randn(4, 16),)), keep=["linear"])
    assert result.heavy == 3 and result.heavy_half == 0
