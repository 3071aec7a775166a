"""A small stand-in for llama.cpp's source that compiles CUDA: what an image takes of it.

llama-server holds one kernel and links what the real one does: cudart, cuBLAS and the driver's
library. With --list-devices it asks for the cards.
"""

from pathlib import Path

CMAKE = """cmake_minimum_required(VERSION 3.18)
project(stand_in CXX CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
foreach(name llama-server llama-quantize)
  add_executable(${name} main.cu)
  target_link_libraries(${name} CUDA::cudart CUDA::cublas CUDA::cuda_driver)
endforeach()
"""
MAIN = """#include <cstdio>
#include <cstring>
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>

__global__ void twice(float *values) { values[threadIdx.x] *= 2; }

int main(int count, char **words) {
  if (count > 1 && !strcmp(words[1], "--version")) {
    std::puts("version: 1 (stand-in)");
    return 0;
  }
  int cards = 0;
  cudaError_t said = cudaGetDeviceCount(&cards);
  std::printf("%d cards: %s\\n", cards, cudaGetErrorString(said));
  if (said != cudaSuccess) return 1;
  float *values;
  CUdevice card;
  cublasHandle_t handle;
  cudaMalloc(&values, 32 * sizeof(float));
  twice<<<1, 32>>>(values);
  return cublasCreate(&handle) || cuDeviceGet(&card, 0) || cudaDeviceSynchronize();
}
"""


def write(folder: Path) -> Path:
    """Write the tree into a new folder and return it."""
    for name in ("conversion", "gguf-py"):
        (folder / name).mkdir(parents=True)
        (folder / name / "empty.py").touch()
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "main.cu").write_text(MAIN)
    (folder / "LICENSE").write_text("a stand-in\n")
    (folder / "convert_hf_to_gguf.py").touch()
    return folder
