"""Mends models: carries out the fixes of findings on a copy, proves it against the original, and writes it in its place.

Frameworks and runtimes are imported by the module of each format, when a model of it is mended.
"""

from mplint.mend.mend import Check as Check
from mplint.mend.mend import Mended as Mended
from mplint.mend.mend import mend as mend
