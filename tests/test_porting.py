"""The porting page: its examples, its tables, and what it says of other normalizations."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import relative_error

from keras_lrn import LocalResponseNormalization, interop

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def page():
    return (ROOT / "PORTING.md").read_text()


@pytest.fixture(scope="module")
def readme():
    return (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def names(page, tmp_path_factory):
    """What the examples define, run one after another as a reader would."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert page.count("```") == 2 * len(blocks) > 0
    namespace = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("porting"))
        for block in blocks:
            exec(compile(block, "<PORTING.md>", "exec"), namespace)
    return namespace


def table(*rows):
    columns = len(rows[0])
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (rows[0], ("---",) * columns, *rows[1:])
    )


# Tables


def test_the_readme_shows_the_table_of_frameworks(readme):
    assert str(interop.FRAMEWORKS) in readme


def test_the_page_says_where_each_framework_was_read(page):
    rows = [("name", "framework", "read from")]
    for name, row in interop.FRAMEWORKS.items():
        rows.append((f"`{name}`", row.title, row.source))
    assert table(*rows) in page


def test_the_page_shows_the_published_models(page):
    rows = [("name", "size, alpha, beta, bias", "read from")]
    for name, (numbers, source) in interop.PUBLISHED.items():
        rows.append((f"`{name}`", ", ".join(map(str, numbers)), source))
    assert table(*rows) in page


def test_links_inside_the_repository_lead_somewhere(page, readme):
    headings = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", page, re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", page):
        assert target[1:] in headings if target.startswith("#") else (ROOT / target).exists()
    assert "(PORTING.md)" in readme


def test_messages_that_point_to_the_page_name_it():
    with pytest.raises(ValueError, match=r"PORTING\.md") as raised:
        interop.from_caffe(norm_region="WITHIN_CHANNEL")
    (name,) = re.findall(r"\w+\.md", str(raised.value))
    assert (ROOT / name).exists()


# Caffe's WITHIN_CHANNEL


def within_channel_by_loops(x, size, alpha, beta):
    """Caffe's definition in float64: squares over neighbouring pixels of one channel."""
    x = x.astype("float64")
    y = np.empty_like(x)
    half = (size - 1) // 2
    for h in range(x.shape[1]):
        for w in range(x.shape[2]):
            square = x[:, max(0, h - half) : h + half + 1, max(0, w - half) : w + half + 1]
            total = np.sum(square**2, axis=(1, 2))
            y[:, h, w] = x[:, h, w] / (1 + alpha / size**2 * total) ** beta
    return y


@pytest.mark.parametrize(("size", "alpha", "beta"), [(3, 5e-5, 0.75), (5, 1e-3, 0.6), (1, 0.1, 1)])
def test_the_recipe_for_within_channel_is_what_caffe_computes(names, size, alpha, beta, tmp_path):
    x = np.random.default_rng(0).normal(scale=200, size=(2, 7, 6, 5)).astype("float32")
    inputs = keras.Input((7, 6, 5))
    model = keras.Model(inputs, names["within_channel"](inputs, size, alpha, beta))
    expected = within_channel_by_loops(x, size, alpha, beta)
    assert relative_error(model.predict(x, verbose=0), expected) < 1e-5
    # The border is where a mean that leaves the zeros out would differ.
    assert np.abs(expected[:, 0] - x[:, 0]).max() > 0.1 * np.abs(x).max()
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    assert relative_error(reloaded.predict(x, verbose=0), expected) < 1e-5


# Is it LRN at all?


class PixelPooling(keras.layers.Layer):
    """The class that circulates under the name LocalResponseNormalization."""

    def call(self, x, n=5, alpha=1e-4, beta=0.75, k=2):
        pooled = tf.nn.avg_pool2d(x**2, n, strides=1, padding="SAME")
        return x / (k + alpha * tf.reduce_sum(pooled, axis=-1, keepdims=True)) ** beta


@pytest.mark.parametrize(
    ("layer", "sees"),
    [
        (LocalResponseNormalization(5, alpha=1e-4), False),
        (keras.layers.Lambda(tf.nn.local_response_normalization), False),
        (PixelPooling(), True),
    ],
    ids=["this layer", "TensorFlow", "pixel pooling"],
)
def test_the_page_tells_lrn_from_what_only_has_its_name(names, layer, sees):
    assert names["sees_other_pixels"](layer, channels=12) is sees
