import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from curioplan.errors import ConfigError
from curioplan.models import BatchedMLP, Normaliser
from curioplan.models.memory import Memory


def network(members=3, inputs=4, outputs=2, layers=2, units=8, activation="silu", seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = BatchedMLP(
        members, inputs, outputs, layers=layers, units=units, activation=activation, generator=generator
    )
    for bias in net.biases:  # zero biases would hide mistakes
        bias.data.normal_(generator=generator)
    return net


def member_as_sequential(net, member):
    modules = []
    for k, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        if k:
            modules.append({"silu": nn.SiLU, "relu": nn.ReLU}[net.activation]())
        linear = nn.Linear(weight.shape[1], weight.shape[2])
        linear.weight.data = weight.data[member].t().clone()
        linear.bias.data = bias.data[member, 0].clone()
        modules.append(linear)
    return nn.Sequential(*modules)


@pytest.mark.parametrize("activation", ["silu", "relu"])
@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("outputs", [1, 2])
def test_outputs_and_gradients_equal_a_loop_over_sequential_members(activation, layers, outputs):
    net = network(layers=layers, activation=activation, outputs=outputs)
    x = torch.randn(3, 11, 4, generator=torch.Generator().manual_seed(1))
    out = net(x)
    out.square().sum().backward()
    for m in range(3):
        single = member_as_sequential(net, m)
        expected = single(x[m])
        expected.square().sum().backward()
        torch.testing.assert_close(out[m], expected)
        linears = [layer for layer in single if isinstance(layer, nn.Linear)]
        for k, linear in enumerate(linears):
            torch.testing.assert_close(net.weights[k].grad[m], linear.weight.grad.t(), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(net.biases[k].grad[m, 0], linear.bias.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("members", [3, 20])
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_gradients_by_inputs_alone_are_those_of_all_even_where_rows_have_none(members, activation):
    net, generator = network(members=members, activation=activation), torch.Generator().manual_seed(1)
    x = torch.randn(members, 11, 4, generator=generator, requires_grad=True)
    weights = torch.randn(members, 11, 2, generator=generator) * (torch.arange(11)[:, None] % 3 > 0)
    weights[1] = 0.0
    found = [
        torch.autograd.grad((weights * net.apply_layers(x, layers)).sum(), x)[0]
        for layers in (net.select(), list(zip(net.weights, net.biases, strict=True)))
    ]
    torch.testing.assert_close(*found)
    assert (found[0][1] == 0).all()
    assert (found[0][0].abs().sum(1) > 0).tolist() == [k % 3 > 0 for k in range(11)]


def test_shared_input_equals_the_same_input_for_every_member():
    net, x = network(), torch.randn(7, 4)
    torch.testing.assert_close(net(x), net(x.repeat(3, 1, 1)))


def test_a_member_does_not_depend_on_the_others():
    net, x = network(), torch.randn(7, 4)
    before = net(x)[1].detach()
    for parameter in net.parameters():
        parameter.data[0] = 9.0
        parameter.data[2] = -9.0
    torch.testing.assert_close(net(x)[1], before)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(0, 200),
    shared=st.booleans(),
    chosen=st.sampled_from([None, [0, 1], [2, 0], [1]]),
    layers=st.integers(0, 3),
    units=st.sampled_from([8, 16, 17]),
    activation=st.sampled_from(["silu", "relu"]),
)
def test_inference_equals_forward_for_any_members_and_rows(rows, shared, chosen, layers, units, activation):
    net = network(layers=layers, units=units, activation=activation)
    members = 3 if chosen is None else len(chosen)
    x = torch.randn(rows, 4) if shared else torch.randn(members, rows, 4)
    expected = net(x) if shared else None
    if expected is None:
        full = torch.zeros(3, rows, 4)
        full[chosen if chosen is not None else slice(None)] = x
        expected = net(full)
    expected = expected if chosen is None else expected[chosen]
    torch.testing.assert_close(net.infer(x, chosen), expected.detach(), rtol=1e-4, atol=1e-5)
    tiles = [part.transpose(1, 2).clone() for _, part in net.tiles(x, net.pack(chosen))]
    torch.testing.assert_close(
        torch.cat([torch.zeros(members, 0, 2), *tiles], 1), expected.detach(), rtol=1e-4, atol=1e-5
    )


def test_inference_in_many_tiles_equals_forward():
    net = network(members=7, units=200)
    x = torch.randn(8003, 4)
    rows = [part for part, _ in net.tiles(x, net.pack())]
    assert len(rows) > 3
    torch.testing.assert_close(net.infer(x), net(x).detach(), rtol=1e-4, atol=1e-5)


def test_memory_is_reused_and_grows_when_it_must():
    memory = Memory()
    small = memory.get("a", 2, 3)
    assert memory.get("a", 2, 3) is small
    large = memory.get("a", 4, 5)
    assert memory.get("a", 2, 3).data_ptr() == large.data_ptr()
    assert memory.get("b", 4, 5).data_ptr() != large.data_ptr()


def test_a_contiguous_selection_shares_memory_with_the_network():
    net = network()
    assert net.select([1, 2])[0][0].data_ptr() == net.weights[0][1].data_ptr()


def test_initial_weights_are_truncated_normal_and_follow_the_generator():
    first, second, other = (
        BatchedMLP(4, 100, 2, layers=1, units=300, generator=torch.Generator().manual_seed(s))
        for s in (0, 0, 1)
    )
    weight = first.weights[0].detach()
    std = 1 / (2 * 100**0.5)
    assert weight.abs().max() <= 2 * std
    assert weight.std().item() == pytest.approx(0.88 * std, rel=0.01)  # truncation at 2 leaves 88 %
    assert all((b == 0).all() for b in first.biases)
    assert torch.equal(weight, second.weights[0])
    assert not torch.equal(weight, other.weights[0])


def test_an_unknown_activation_is_refused():
    with pytest.raises(ConfigError, match="activation"):
        BatchedMLP(1, 1, 1, layers=1, units=1, activation="gelu")


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 60), max_size=6),
    scale=st.floats(1e-3, 1e4),
    offset=st.floats(-1e4, 1e4),
    seed=st.integers(0, 99),
)
def test_normaliser_equals_numpy_whatever_the_chunks(cuts, scale, offset, seed):
    data = np.random.default_rng(seed).normal(offset, scale, (60, 3))
    data[:, 2] = offset  # constant
    normaliser = Normaliser(3)
    for chunk in np.split(data, sorted(cuts)):
        normaliser.update(torch.tensor(chunk))
    std = data.std(0)
    std = np.where(std <= 1e-6 * np.maximum(1, np.abs(data.mean(0))), 1, std)
    np.testing.assert_allclose(normaliser.mean64, data.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(normaliser.std, std, rtol=1e-5)
    assert normaliser.std[2] == 1
    x = torch.tensor(data).float()
    torch.testing.assert_close(
        normaliser.denormalise(normaliser.normalise(x)), x, rtol=1e-3, atol=scale * 1e-3
    )


def test_an_empty_normaliser_changes_nothing_and_its_state_survives():
    normaliser, x = Normaliser(2), torch.randn(5, 2)
    assert torch.equal(normaliser.normalise(x), x)
    normaliser.update(x)
    other = Normaliser(2)
    other.load_state_dict(normaliser.state_dict())
    more = torch.randn(3, 2)
    normaliser.update(more)
    other.update(more)
    assert torch.equal(normaliser.std, other.std)
    assert torch.equal(normaliser.squares, other.squares)


def test_what_a_network_says_of_a_dimension_that_never_varies_is_not_believed():
    normaliser = Normaliser(2)
    normaliser.update(torch.tensor([[0.0, 3.0], [2.0, 3.0]]))
    back = normaliser.denormalise(torch.tensor([5.0, 5.0]))
    assert back.tolist() == [6.0, 3.0]
