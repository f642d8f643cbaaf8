// SPDX-License-Identifier: Apache-2.0
// What a captured step starts: writes a line for each kernel of every CUDA graph that a
// program makes, its name, grid and block, to the file named by GRAPH_KERNELS and the
// number of the process. To be loaded before the program's own libraries:
//
//   g++ -std=c++20 -O2 -shared -fPIC -I"$CUDA_HOME/include" bench/graph_kernels.cpp \
//       -o graph_kernels.so -ldl
//   GRAPH_KERNELS=one LD_PRELOAD=./graph_kernels.so cohort train ... --device cuda
//
// bench/same_kernels.py compares two such files.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

template <typename Function>
Function of_driver(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function>(::dlsym(driver, name));
}

std::string name_of(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  static const auto of_function =
      of_driver<CUresult (*)(const char**, CUfunction)>("cuFuncGetName");
  static const auto of_kernel =
      of_driver<CUresult (*)(const char**, CUkernel)>("cuKernelGetName");
  const char* name = nullptr;
  if (kernel.func && of_function(&name, kernel.func) == CUDA_SUCCESS) return name;
  if (kernel.kern && of_kernel(&name, kernel.kern) == CUDA_SUCCESS) return name;
  return "?";
}

void write_kernel(std::FILE* file, CUgraphNode node) {
  static const auto params_of =
      of_driver<CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)>(
          "cuGraphKernelNodeGetParams_v2");
  CUDA_KERNEL_NODE_PARAMS kernel{};
  if (params_of(node, &kernel) != CUDA_SUCCESS) return;
  std::fprintf(file, "%s %ux%ux%u %ux%ux%u\n", name_of(kernel).c_str(), kernel.gridDimX,
               kernel.gridDimY, kernel.gridDimZ, kernel.blockDimX, kernel.blockDimY,
               kernel.blockDimZ);
}

void write_graph(cudaGraph_t graph) {
  const char* const path = std::getenv("GRAPH_KERNELS");
  if (!path) return;
  size_t count = 0;
  if (cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess) return;
  std::vector<cudaGraphNode_t> nodes(count);
  cudaGraphGetNodes(graph, nodes.data(), &count);
  std::FILE* const file =
      std::fopen((std::string(path) + "." + std::to_string(::getpid())).c_str(), "a");
  if (!file) return;
  for (const auto node : nodes) {
    cudaGraphNodeType type{};
    cudaGraphNodeGetType(node, &type);
    if (type == cudaGraphNodeTypeKernel)
      write_kernel(file, node);
    else
      std::fprintf(file, "node of type %d\n", static_cast<int>(type));
  }
  std::fclose(file);
}

}  // namespace

extern "C" cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec,
                                                     cudaGraph_t graph,
                                                     unsigned long long flags) {
  static const auto real =
      next<decltype(&cudaGraphInstantiateWithFlags)>("cudaGraphInstantiateWithFlags");
  write_graph(graph);
  return real(exec, graph, flags);
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                            unsigned long long flags) {
  static const auto real =
      next<decltype(&cudaGraphInstantiate)>("cudaGraphInstantiate");
  write_graph(graph);
  return real(exec, graph, flags);
}
