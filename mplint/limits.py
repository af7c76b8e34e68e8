"""What the half dtypes can hold. The tests compare these numbers with what numpy and ml_dtypes say; a leaf that imports nothing."""

FLOAT32_MAX = 3.4028234663852886e38
FLOAT16_MAX = 65504.0
FLOAT16_SMALLEST_NORMAL = 6.103515625e-05
FLOAT16_ZERO = 2.0**-25  # this and less is rounded to 0
BFLOAT16_MAX = 3.3895313892515355e38
BFLOAT16_SMALLEST_NORMAL = 1.1754943508222875e-38
BFLOAT16_ZERO = 2.0**-134  # likewise
HALF_MAX = {"float16": FLOAT16_MAX, "bfloat16": BFLOAT16_MAX}
HALF_ZERO = {"float16": FLOAT16_ZERO, "bfloat16": BFLOAT16_ZERO}
HALF_SMALLEST_NORMAL = {"float16": FLOAT16_SMALLEST_NORMAL, "bfloat16": BFLOAT16_SMALLEST_NORMAL}
EXACT_INTEGERS = {"float16": 2048, "bfloat16": 256}  # whole numbers up to these are held exactly
