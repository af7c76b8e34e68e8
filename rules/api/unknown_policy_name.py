"""MP108 unknown-policy-name."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from mplint.findings import Applicability, Finding, Fix, Replace, Severity
from mplint.python.file import SourceFile
from mplint.rule import Rule, Surroundings

from .policy_names import bad_policy_names


class UnknownPolicyName(Rule):
    """A dtype policy name that Keras does not know

    ## What it does
    Finds a dtype policy name that Keras does not know: `"fp16"`, `"mixed_fp16"`, `"bf16"`, `"mixed_float32"`, `"FLOAT32"` and the like, as
    the global policy, in a policy object, as floatx or as a layer's dtype. Only names written in the program are judged.

    ## Why is this bad?
    Keras raises ValueError ("Cannot convert ... to a mixed precision DTypePolicy") when the line runs: it takes `mixed_float16`,
    `mixed_bfloat16` and plain dtype names, nothing else.

    ## Example
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_fp16")
    ```

    ## Use instead
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    ```

    ## Fix safety
    Safe: the line could not run before. The nearest valid name takes the place of the wrong one; a bare `"fp16"` as the policy becomes
    `"mixed_float16"`, since pure float16 does not train (MP105).

    ## Evidence
    Shown on the CPU by tests/witness/test_mp108.py.

    ## References
    - https://keras.io/api/mixed_precision/policy/
    """

    code = "MP108"
    name = "unknown-policy-name"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("keras",)
    tokens = ("set_global_policy", "set_policy", "set_dtype_policy", "set_floatx", "Policy", "dtype=", "dtype =")

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report each rejected name where it is passed."""
        found = list(bad_policy_names(file, around))
        passed = {bad.literal for bad in found}
        for bad in found:
            quote = file.text(bad.literal)[0] if file.text(bad.literal)[:1] in "'\"" else '"'
            fix = None
            if bad.nearest and not is_read_elsewhere(file, bad.literal, passed):
                change = Replace(file.span(bad.literal), f"{quote}{bad.nearest}{quote}")
                fix = Fix(f'write "{bad.nearest}"', Applicability.SAFE, (change,))
            why = "Keras raises ValueError here: it knows mixed_float16, mixed_bfloat16 and the names of dtypes."
            help = f'write "{bad.nearest}"' if bad.nearest else 'use "mixed_float16" or "mixed_bfloat16"'
            yield self.finding(file, bad.argument, f'"{bad.name}" is no dtype policy', why=why, help=help, fix=fix)


def is_read_elsewhere(file: SourceFile, literal: ast.Constant, passed: Container[ast.Constant]) -> bool:
    """Whether a file writes the same name elsewhere, to compare with or as one of several choices: both would have to change."""
    given = ast.Call | ast.keyword
    own = isinstance(file.syntax.parents.get(literal), given) and not is_option(file, literal)
    return not own and any(c.value == literal.value and c is not literal and c not in passed for c in file.syntax.all(ast.Constant))


def is_option(file: SourceFile, literal: ast.Constant) -> bool:
    """Whether a name is the default of an option."""
    parent = file.syntax.parents.get(literal)
    return isinstance(parent, ast.keyword) and parent.arg == "default"
