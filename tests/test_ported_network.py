"""The example that ports AlexNet from ONNX: a whole network against onnxruntime."""

from pathlib import Path

import numpy as np
import pytest
from cases import imported
from onnx import helper

EXAMPLE = Path(__file__).parent.parent / "notebooks" / "port_alexnet_from_onnx.py"


@pytest.fixture(scope="module")
def example():
    return imported(EXAMPLE)


@pytest.fixture(scope="module")
def model(example):
    return example.alexnet_with_random_weights(seed=0)


@pytest.fixture(scope="module")
def image(example):
    return example.random_image(seed=1)


@pytest.fixture(scope="module")
def ported(example, model, image):
    return example.run_in_keras(example.port(model), image)


def test_ported_network_gives_the_outputs_of_onnxruntime(example, model, image, ported):
    expected = example.run_in_onnxruntime(model, image)
    assert set(ported) == {"r2", "r6", "r24", "prob_1"}
    for name in ("prob_1", "r24"):
        np.testing.assert_allclose(ported[name], expected[name], rtol=0, atol=1e-4)
    for name in ("r2", "r6"):
        atol = 1e-5 * np.abs(expected[name]).max()
        np.testing.assert_allclose(ported[name], expected[name], rtol=0, atol=atol)


# onnxruntime refuses an alpha of 0; with 1e-30 its LRN nodes change nothing either.
@pytest.mark.parametrize("alpha", [1e-30, 5 * 1e-4], ids=["no LRN", "alpha not divided by size"])
def test_a_wrong_lrn_would_show_in_the_outputs(example, model, image, ported, alpha):
    wrong = type(model)()
    wrong.CopyFrom(model)
    for node in wrong.graph.node:
        for attribute in node.attribute:
            if attribute.name == "alpha":
                attribute.f = alpha
    outputs = example.run_in_onnxruntime(wrong, image)
    assert np.abs(outputs["prob_1"] - ported["prob_1"]).max() > 100 * 1e-4
    assert np.abs(outputs["r24"] - ported["r24"]).max() > 100 * 1e-4


def test_the_example_prints_how_far_apart_the_two_are(example, capsys):
    example.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["r2", "r6", "r24", "prob_1"]
    for _, largest, difference in rows:
        assert float(difference) < 1e-4 * max(1.0, float(largest))


def test_an_operator_that_the_example_does_not_know_is_refused(example):
    with pytest.raises(ValueError, match="Received: op_type='Tanh'"):
        example.port_node(helper.make_node("Tanh", ["x"], ["y"]), None, {})
