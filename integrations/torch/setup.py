"""Builds the extension module by CMake; everything else stands in pyproject.toml."""
import os
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent


class BuildWithCMake(build_ext):
    def build_extension(self, extension):
        from torch.utils import cpp_extension

        module = Path(self.get_ext_fullpath(extension.name)).resolve()
        build = Path(os.environ.get("ROTA_TORCH_BUILD", self.build_temp)).resolve()
        subprocess.check_call([
            "cmake", "-S", str(HERE), "-B", str(build),
            "-DCMAKE_BUILD_TYPE=Release",
            "-DROTA_TORCH_INCLUDES=" + ";".join(cpp_extension.include_paths()),
            "-DROTA_TORCH_LIBRARIES=" + ";".join(cpp_extension.library_paths()),
            "-DROTA_PYTHON_INCLUDES=" + sysconfig.get_paths()["include"],
            "-DROTA_MODULE_SUFFIX=" + sysconfig.get_config_var("EXT_SUFFIX"),
            "-DROTA_PREFIX=" + os.environ.get("ROTA_PREFIX", ""),
        ])
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.check_call(["cmake", "--build", str(build), "--target", "rota_torch",
                               "--parallel", jobs])
        # Only this folder's files: those of the library's own tree are not the package's.
        subprocess.check_call(["cmake", "--install", str(build), "--prefix", str(module.parent)])


setup(ext_modules=[Extension("rota.torch._C", sources=[])],
      cmdclass={"build_ext": BuildWithCMake})
