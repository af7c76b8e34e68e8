import numpy as np
import tensorflow as tf


def get_model():
    model = tf.keras.models.Sequential()
    model.add(tf.keras.layers.Dense(64, activation="relu"))
    model.add(tf.keras.layers.Dropout(0.1))
    model.add(tf.keras.layers.Dense(5))
    model.add(tf.keras.layers.Softmax())
    return model


def main():
    tf.keras.utils.set_random_seed(8)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    rng = np.random.default_rng(8)
    x = rng.normal(size=(256, 10)).astype("float32")
    y = tf.one_hot(x[:, :5].argmax(axis=1), 5).numpy()

    with strategy.scope():
        model = get_model()
        model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=64, epochs=4, verbose=0)
    print("loss", history.history["loss"])


if __name__ == "__main__":
    main()
