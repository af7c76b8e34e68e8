"""What a rule may ask about its surroundings: the library versions and the hardware that the project targets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.hardware import Target
    from mplint.versions import Versions

    Libraries = tuple[Versions | None, Versions | None, Versions | None, tuple[tuple[str, Versions], ...]]


Ranges = tuple[tuple[str, tuple[float, float]], ...]
Options = tuple[tuple[tuple[str, str], int], ...]


class Targets:
    """Targets of one file: library versions (None: not known) and hardware (None: not named).

    `libraries` gives the versions of torch, Keras and TensorFlow, and those of trainers by their distributions' names; it is asked only
    when a rule asks, since it may read the project's dependency files; `programs` gives those of a program that installs its own, from its
    source and whether it is a notebook. `runtime` names what will run a model, `input_ranges` the lowest and the highest value of its
    inputs, `policy` the mixed policy that its conversion is asked about; `options` are the numbers of rules that the user
    sets, by code and name.
    """

    def __init__(
        self,
        torch: Versions | None = None,
        keras: Versions | None = None,
        tensorflow: Versions | None = None,
        hardware: Target | None = None,
        libraries: Callable[[], Libraries] | None = None,
        runtime: str | None = None,
        input_ranges: Ranges = (),
        programs: Callable[[str, bool], Libraries | None] | None = None,
        policy: str | None = None,
        options: Options = (),
    ) -> None:
        self.hardware = hardware
        self.runtime = runtime
        self.policy = policy
        self.input_ranges = dict(input_ranges)
        self.options = dict(options)
        self._libraries = libraries or (lambda: (torch, keras, tensorflow, ()))
        self._programs = programs

    def of_program(self, source: str, *, notebook: bool) -> Targets:
        """The targets of one program: these, or with the versions that it installs by itself."""
        own = self._programs(source, notebook) if self._programs is not None and ("install" in source or notebook) else None
        if own is None:
            return self
        ranges = tuple(self.input_ranges.items())
        options = tuple(self.options.items())
        return Targets(None, None, None, self.hardware, lambda: own, self.runtime, ranges, policy=self.policy, options=options)

    def told(self) -> str:
        """Everything that a result may depend on, as text."""
        return f"{self.libraries} {self.hardware} {self.runtime} {self.input_ranges} {self.policy} {self.options}"

    @cached_property
    def libraries(self) -> Libraries:
        """The versions of torch, Keras and TensorFlow, and of trainers by name."""
        return self._libraries()

    def trainer(self, name: str) -> Versions | None:
        """The versions of a trainer's distribution ("lightning", "transformers", ...) that the project supports."""
        return dict(self.libraries[3]).get(name)

    @property
    def torch(self) -> Versions | None:
        """The versions of torch that the project supports."""
        return self.libraries[0]

    @property
    def keras(self) -> Versions | None:
        """The versions of Keras that the project supports."""
        return self.libraries[1]

    @property
    def tensorflow(self) -> Versions | None:
        """The versions of TensorFlow that the project supports."""
        return self.libraries[2]

    @property
    def keras_major(self) -> int | None:
        """2 or 3 where the targets say which Keras the code runs under, else None."""
        for versions, third in ((self.keras, "3"), (self.tensorflow, "2.16")):
            if versions is not None:
                if versions.at_least(third):
                    return 3
                if versions.below(third):
                    return 2
        return None

    def torch_lacks(self, version: str | None) -> bool:
        """Whether the project supports a torch older than `version` (None: any), so that what came with it can't be used."""
        return version is not None and self.torch is not None and self.torch.before(version)
