"""Uses the installed wheel as its users would; run outside the checkout."""

import pathlib

import keras
import numpy as np

import keras_lrn
from keras_lrn import reference

folder = pathlib.Path(keras_lrn.__file__).parent
assert "site-packages" in folder.parts, folder
assert (folder / "py.typed").exists()
model = keras.Sequential([keras.Input((4, 5, 8)), keras_lrn.LRN(5, alpha=2.0)])
x = np.random.default_rng(0).normal(size=(2, 4, 5, 8)).astype("float32")
model.save("model.keras")
reloaded = keras.saving.load_model("model.keras")
expected = reference.local_response_normalization(x, 5, alpha=2.0)
np.testing.assert_allclose(reloaded.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)
print(f"The wheel of keras_lrn {keras_lrn.__version__} works outside the checkout.")
