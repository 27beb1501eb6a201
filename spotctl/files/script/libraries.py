"""The libraries of a script: its framework, and what machines must install for it."""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from spotctl.files.script.source import ScriptSource

LIGHTNING, TRANSFORMERS, TORCH, KERAS, SKLEARN, JAX, PLAIN = (
    "lightning",
    "transformers",
    "torch",
    "keras",
    "scikit-learn",
    "jax",
    "Python",
)
_FRAMEWORKS = {
    "lightning": LIGHTNING,
    "pytorch_lightning": LIGHTNING,
    "tensorflow": KERAS,
    "keras": KERAS,
    "jax": JAX,
    "flax": JAX,
    "torch": TORCH,
    "sklearn": SKLEARN,
}
"""The framework of each import; the first that a script has counts, before torch, which all others may use."""

_PACKAGES = {
    "sklearn": "scikit-learn",
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "pytorch_lightning": "pytorch-lightning",
    "google": "google-cloud-storage",
    "attr": "attrs",
    "git": "gitpython",
    "faiss": "faiss-cpu",
}
"""Packages that have another name than what they install."""

_PRESENT = {"spotctl", "agileml", "bidbrain", "pricing_data", "__future__", *sys.stdlib_module_names}


@dataclass(frozen=True, slots=True)
class Libraries:
    """The framework, what `pip install` takes, and the file that says so, if there is one."""

    framework: str
    install: str = ""
    file: str = ""


def libraries_of(source: ScriptSource, folder: Path) -> Libraries:
    """The libraries of a script that runs in a folder."""
    imported = _imported(source)
    frameworks = [name for package, name in _FRAMEWORKS.items() if package in imported]
    uses_trainer = "transformers" in imported and any(
        source.called(call).startswith("transformers.") and source.called(call).endswith("Trainer")
        for call in source.calls
    )
    framework = TRANSFORMERS if uses_trainer else next(iter(frameworks), PLAIN)
    for place in dict.fromkeys((folder, source.path.resolve().parent)):
        if (place / "requirements.txt").is_file():
            name = _relative(place / "requirements.txt", folder)
            return Libraries(framework, f"-r {name}", name)
        if _is_project(place / "pyproject.toml"):
            name = _relative(place, folder)
            return Libraries(framework, name, "pyproject.toml")
    own = {
        path.stem for place in (folder, source.path.resolve().parent) for path in place.glob("*") if _is_module(path)
    }
    names = sorted(_PACKAGES.get(name, name.replace("_", "-")) for name in imported - _PRESENT - own)
    return Libraries(framework, " ".join(names))


def _imported(source: ScriptSource) -> set[str]:
    """The top-level packages that a script imports."""
    names: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _is_module(path: Path) -> bool:
    return path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))


def _is_project(path: Path) -> bool:
    return path.is_file() and "[project]" in path.read_text("utf-8", "replace")


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
