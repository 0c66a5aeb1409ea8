"""`fit` with a validation: keras_fit.py keras | tensorflow.keras."""
import importlib
import sys

import numpy

keras = importlib.import_module(sys.argv[1])
keras.utils.set_random_seed(1)
x = numpy.random.rand(512, 16).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=32, epochs=3, verbose=0, validation_split=0.25)
print("means", *history.history["loss"])
print("steps 36")
