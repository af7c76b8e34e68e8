"""R programs as programs: what each construct of R is in Python's terms, at the places of the R text."""

from __future__ import annotations

import ast

import pytest

from mplint.python.document import InputError
from mplint.python.file import SourceFile
from mplint.python.load import load
from mplint.python.parse import parse


def said(text: str, path: str = "a.R") -> str:
    """An R program in Python's words."""
    return ast.unparse(parse(load(path, text.encode())))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("x <- 5L", "x = 5"),
        ("5 -> x", "x = 5"),
        ("x = c(1, 2.5, 1e-7)", "x = (1, 2.5, 1e-07)"),
        ("x <- list(a = TRUE, b = NULL)", "x = {'a': True, 'b': None}"),
        ("a <- b <- 1", "b = 1\na = b"),
        ("c(x, y) %<-% f()", "x, y = f()"),
        ("x[[1]]; x[['a']]; x[i, ]", "x[0]\nx['a']\nx[i, :]"),
        ("a %/% 2 + b %% 3 ^ 2", "a // 2 + b % 3 ** 2"),
        ("if (!is.null(x) && x > 1) f(x) else g(x)", "if not x is None and x > 1:\n    f(x)\nelse:\n    g(x)"),
        ("y <- if (a) 1 else 2", "if a:\n    y = 1\nelse:\n    y = 2"),
        ("for (i in 1:3) print(i)", "for i in range(1, 4):\n    print(i)"),
        ("repeat { if (done) break }", "while True:\n    if done:\n        break"),
        ("f <- function(x, y = 2) { z <- x; z + y }", "def f(x, y=2):\n    z = x\n    return z + y"),
        ("f <- function(x) return(x)", "def f(x):\n    return x"),
        ("sapply(xs, function(x) g(x))", "sapply(xs, lambda x: g(x))"),
        ("sapply(xs, \\(x) g(x))", "sapply(xs, lambda x: g(x))"),
        ("x %>% f(y) %>% g()", "g(f(x, y))"),
        ("x |> f(y = _)", "f(y=x)"),
        ("x %>% lm(y, data = .)", "lm(y, data=x)"),
        ("x %<>% f()", "x = f(x)"),
        ("tf$nn$relu(x)", "tf.nn.relu(x)"),
        ("`odd name` <- `f`(1)", "odd name = f(1)"),
        ('tf <- import("tensorflow")', "tf = tensorflow"),
        ('tr <- reticulate::import("transformers.models")', "import transformers.models as tr"),
        ("library(tensorflow)", "import tensorflow as tf"),
        ("with(tf$GradientTape() %as% tape, { loss <- f(x) })", "with tf.GradientTape() as tape:\n    loss = f(x)"),
        ("loss <- with(tf$GradientTape() %as% tape, f(x))", "with tf.GradientTape() as tape:\n    loss = f(x)"),
        ("opt$apply_gradients(purrr::transpose(list(g, v)))", "opt.apply_gradients(zip(g, v))"),
        ("model %>% fit(x, y, batch_size = 32)", "model.fit(x, y, batch_size=32)"),
        ("ds %>% dataset_batch(50) %>% dataset_prefetch(2)", "ds.batch(50).prefetch(2)"),
        ("tryCatch({ f() }, error = function(e) NULL)", "try:\n    f()\nexcept:\n    pass"),
        ("stop('no')", "raise RuntimeError('no')"),
        ("x <- {f(); g()}", "f()\nx = g()"),
        ("h(if (a) {f(); g()} else 1)", "if a:\n    f()\n    value at 1:2 = g()\nelse:\n    value at 1:2 = 1\nh(value at 1:2)"),
        ("lapply(xs, ~ .x + 1)", "lapply(xs, lambda .x=None, .y=None: .x + 1)"),
        ("f <- function() { count <<- count + 1 }", "def f():\n    global count\n    count = count + 1\n    return count"),
    ],
)
def test_what_an_expression_of_r_is(written: str, meant: str) -> None:
    assert said(written) == meant


def test_layers_are_made_and_given_to_what_stands_before_them_in_the_pipe() -> None:
    assert said("x %>% layer_dense(8, 'relu')").endswith("mplint_r.compose(x, keras.layers.Dense(units=8, activation='relu'))")
    assert said("layer_dense(units = 8)") == "keras.layers.Dense(units=8)"
    assert said("layer_add(list(a, b))") == "keras.layers.Add()([a, b])"
    assert said("keras_model_sequential()") == "keras.Sequential()"
    assert said("layer_dense <- function(x) x\nlayer_dense(3)").endswith("layer_dense(3)")


def test_the_r_package_says_which_keras_it_is() -> None:
    assert said("library(keras)") == "import tf_keras as keras"
    assert said("library(keras3)") == "import keras"
    assert said("keras3::layer_dense(units = 8)") == "import keras\nkeras.layers.Dense(units=8)"
    assert said("suppressPackageStartupMessages(library('keras3'))") == "import keras"


def test_losses_are_made_or_taken_by_what_they_are_given() -> None:
    assert said("loss_mean_squared_error()") == "keras.losses.MeanSquaredError()"
    assert said("loss_mean_squared_error(y, p)") == "keras.losses.mean_squared_error(y_true=y, y_pred=p)"


def test_classes_are_made_of_functions() -> None:
    text = """
Net <- new_model_class("Net",
  initialize = function() { super$initialize(); self$head <- layer_dense(units = 1) },
  call = function(inputs) self$head(inputs))
"""
    assert said(text) == (
        "class Net(keras.Model):\n\n    def __init__(self):\n        super().__init__()\n        self.head = keras.layers.Dense(units=1)\n"
        "        return self.head\n\n    def call(self, inputs):\n        return self.head(inputs)"
    )


def test_places_are_those_of_the_r_text() -> None:
    text = 'é <- "ü"; m %>%\n  layer_dense(units = 8,  # wide\n    activation = "relu")\n'
    document = load("a.R", text.encode())
    file = SourceFile(document, parse(document))
    texts = {ast.unparse(node): file.text(node) for node in file.syntax.all(ast.Call)}
    layer = texts["keras.layers.Dense(units=8, activation='relu')"]
    assert layer == 'layer_dense(units = 8,  # wide\n    activation = "relu")'
    assert file.location(file.syntax.all(ast.Assign)[0])[1:5] == (1, 1, 1, 9)


def test_what_is_no_r_is_reported_at_its_place() -> None:
    with pytest.raises(InputError) as error:
        parse(load("a.R", b"x <- 1\ny <- (2\n"))
    assert error.value.line is not None and error.value.line >= 2
    assert "read as R" in error.value.message


MARKDOWN = """---
title: A
---
`float16` is prose.

```{r setup, include=FALSE}
x <- 1
```

```{python}
y = 2
```

```r
shown <- "and not run"
```

````{r}
z <- "```"
````
"""


@pytest.mark.parametrize("path", ["a.Rmd", "a.qmd"])
def test_markdown_holds_programs_at_its_own_lines(path: str) -> None:
    document = load(path, MARKDOWN.encode())
    assert said(MARKDOWN, path) == "x = 1\nz = '```'"
    assert [node.lineno for node in parse(document).body] == [7, 19]
    assert document.source == MARKDOWN


def test_quarto_without_r_is_python() -> None:
    text = "# A\n\n```{python}\n#| echo: false\nx = 1\n```\n"
    document = load("a.qmd", text.encode())
    assert document.language == "python"
    assert said(text, "a.qmd") == "x = 1"


def test_a_chunk_that_is_no_r_is_reported_and_an_excerpt_is_not() -> None:
    broken = "```{r}\nx <- 1\n```\n\n```{r}\nfor (i in 1:3) {\n```\n"
    document = load("a.Rmd", broken.encode())
    assert [(problem.line, problem.message) for problem in document.problems] == [(6, "this chunk is no complete R code")]
    assert said(broken, "a.Rmd") == "x = 1"
    assert not load("a.Rmd", broken.replace("{r}\nfor", "{r, eval=FALSE}\nfor").encode()).problems
    assert not load("a.Rmd", ("```{r}\nknitr::opts_chunk$set(eval = FALSE)\n```\n" + broken).encode()).problems
