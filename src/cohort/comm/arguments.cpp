// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/arguments.h"

#include <ATen/MemoryOverlap.h>

#include <limits>

#include "cohort/comm/dtype.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

// A dtype as our messages name it, or as LibTorch does where it is none of ours.
const char* name_of_dtype(at::ScalarType dtype) {
  const char* name = dtype_name(dtype);
  return name ? name : c10::toString(dtype);
}

// Tensors on such a device are legal.
bool is_legal(const Communicator& comm, at::Device device) {
  return device.is_cpu() || (device.is_cuda() && comm.takes_cuda());
}

const char* legal_devices(const Communicator& comm) {
  return comm.takes_cuda() ? "cpu or cuda" : "cpu";
}

void check_written(const Communicator& comm, const char* op, const Tensor& tensor) {
  check_tensor(comm, op, tensor);
  if (tensor.is_contiguous()) return;
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse_call(comm, op,
                text("a tensor of sizes ", tensor.sizes(), " and strides ",
                     tensor.strides(), " to write to, with several elements in one ",
                     "place; legal: a place for each"));
  }
}

void check_reduction(const Communicator& comm, const char* op, at::ScalarType dtype,
                     ReduceOp reduce) {
  const int number = static_cast<int>(reduce);
  if (number < 0 || number > static_cast<int>(ReduceOp::kMin)) {
    refuse_call(comm, op,
                text("reduction ", number, "; legal: kSum, kMean, kMax, kMin"));
  }
  if (reduce == ReduceOp::kMean && !at::isFloatingType(dtype)) {
    refuse_call(comm, op,
                text("mean of ", name_of_dtype(dtype), "; legal: floating types"));
  }
}

void check_one_device(const Communicator& comm, const char* op, const Tensor& out,
                      const Tensor& in) {
  if (out.device() == in.device()) return;
  refuse_call(comm, op,
              text("tensors on ", in.device().str(), " and ", out.device().str(),
                   "; legal: one device"));
}

void check_one_dtype(const Communicator& comm, const char* op, const Tensor& out,
                     const Tensor& in) {
  check_one_device(comm, op, out, in);
  if (out.scalar_type() == in.scalar_type()) return;
  refuse_call(comm, op,
              text("in is ", name_of_dtype(in.scalar_type()), " and out is ",
                   name_of_dtype(out.scalar_type()), "; legal: one dtype"));
}

// `part` is rank()'s part of `whole` exactly, or lies elsewhere.
void check_part(const Communicator& comm, const char* op, const Tensor& whole,
                const Tensor& part) {
  if (whole.numel() != part.numel() * comm.size()) {
    refuse_call(comm, op,
                text(whole.numel(), " elements in all and ", part.numel(),
                     " for each of ", comm.size(), " ranks; legal: equal parts"));
  }
  const auto overlap = at::get_overlap_status(whole, part);
  if (overlap == at::MemOverlapStatus::No || overlap == at::MemOverlapStatus::TooHard)
    return;
  const auto* begin = static_cast<const std::byte*>(whole.const_data_ptr());
  const auto* own = begin + static_cast<size_t>(comm.rank()) * part.nbytes();
  if (whole.is_contiguous() && part.is_contiguous() && part.const_data_ptr() == own)
    return;
  refuse_call(comm, op,
              "in and out overlap; legal: this rank's own part of the whole, or none");
}

// Elements for each rank: equal parts, or rows along dim 0.
std::vector<int64_t> count_parts(const Communicator& comm, const Tensor& tensor,
                                 std::span<const int64_t> rows, const char* which) {
  const int64_t size = comm.size();
  if (rows.empty()) {
    if (tensor.numel() % size == 0)
      return std::vector<int64_t>(static_cast<size_t>(size), tensor.numel() / size);
    refuse_call(comm, "all_to_all",
                text(tensor.numel(), " elements for ", size,
                     " ranks; legal: a multiple, or ", which));
  }
  const int64_t height = tensor.dim() > 0 ? tensor.size(0) : 1;
  const auto legal = text("; legal: ", size, " entries from 0 on, ", height, " in all");
  if (static_cast<int64_t>(rows.size()) != size)
    refuse_call(comm, "all_to_all",
                text(which, " has ", rows.size(), " entries", legal));
  int64_t total = 0;
  for (const int64_t count : rows) {
    // Compared one by one: a sum of any numbers might be right by overflow.
    if (count < 0 || count > height)
      refuse_call(comm, "all_to_all", text(which, " has an entry of ", count, legal));
    total = std::min(total + count, height + 1);
  }
  if (total != height)
    refuse_call(comm, "all_to_all",
                text(which, " do not have all rows, or more", legal));
  const int64_t row = height > 0 ? tensor.numel() / height : 0;
  std::vector<int64_t> counts(rows.begin(), rows.end());
  for (auto& count : counts) count *= row;
  return counts;
}

// The k-th thing a rank sends itself is the k-th that it takes from itself.
void check_own_transfers(const Communicator& comm, std::span<const Transfer> sends,
                         std::span<const Transfer> receives) {
  const auto own = [&](std::span<const Transfer> list) {
    std::vector<const Tensor*> tensors;
    for (const auto& transfer : list)
      if (transfer.peer == comm.rank()) tensors.push_back(&transfer.tensor);
    return tensors;
  };
  const auto sent = own(sends), taken = own(receives);
  if (sent.size() != taken.size()) {
    refuse_call(comm, "exchange",
                text("a rank sends itself ", sent.size(), " tensors and takes ",
                     taken.size(), " from itself; legal: as many in one call"));
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->numel() == taken[i]->numel() &&
        sent[i]->scalar_type() == taken[i]->scalar_type())
      continue;
    refuse_call(comm, "exchange",
                text("a rank sends itself ", sent[i]->numel(), " ",
                     name_of_dtype(sent[i]->scalar_type()), " and takes ",
                     taken[i]->numel(), " ", name_of_dtype(taken[i]->scalar_type()),
                     " from itself; legal: the same"));
  }
}

}  // namespace

void refuse_call(const Communicator& comm, const char* op, const std::string& what) {
  throw ConfigError(text("[comm.", comm.backend(), "] ", op, ": ", what, " (rank ",
                         comm.rank(), ")"));
}

void check_tensor(const Communicator& comm, const char* op, const Tensor& tensor) {
  if (!tensor.defined())
    refuse_call(comm, op,
                text("an undefined tensor; legal: one on ", legal_devices(comm)));
  if (!is_legal(comm, tensor.device())) {
    refuse_call(comm, op,
                text("a tensor on ", tensor.device().str(), "; legal: one on ",
                     legal_devices(comm)));
  }
  if (tensor.layout() != at::kStrided || tensor.is_neg()) {
    refuse_call(comm, op,
                text("a tensor of layout ", tensor.layout(),
                     tensor.is_neg() ? ", negated when read" : "",
                     "; legal: Strided, with its values in memory"));
  }
  if (!dtype_name(tensor.scalar_type())) {
    refuse_call(comm, op,
                text("dtype ", c10::toString(tensor.scalar_type()),
                     "; legal: float64, float32, float16, bfloat16, int64, int32, "
                     "uint8"));
  }
}

void check_all_reduce(const Communicator& comm, const Tensor& tensor, ReduceOp op) {
  check_written(comm, "all_reduce", tensor);
  check_reduction(comm, "all_reduce", tensor.scalar_type(), op);
}

void check_reduce_scatter(const Communicator& comm, const Tensor& out, const Tensor& in,
                          ReduceOp op) {
  check_tensor(comm, "reduce_scatter", in);
  check_written(comm, "reduce_scatter", out);
  check_one_dtype(comm, "reduce_scatter", out, in);
  check_part(comm, "reduce_scatter", in, out);
  check_reduction(comm, "reduce_scatter", in.scalar_type(), op);
}

void check_all_gather(const Communicator& comm, const Tensor& out,
                      const Tensor& shard) {
  check_tensor(comm, "all_gather", shard);
  check_written(comm, "all_gather", out);
  check_one_dtype(comm, "all_gather", out, shard);
  check_part(comm, "all_gather", out, shard);
}

void check_broadcast(const Communicator& comm, const Tensor& tensor, int root) {
  check_written(comm, "broadcast", tensor);
  if (root >= 0 && root < comm.size()) return;
  refuse_call(comm, "broadcast",
              text("root ", root, "; legal: 0 to ", comm.size() - 1));
}

Parts check_all_to_all(const Communicator& comm, const Tensor& out, const Tensor& in,
                       std::span<const int64_t> out_rows,
                       std::span<const int64_t> in_rows) {
  check_tensor(comm, "all_to_all", in);
  check_written(comm, "all_to_all", out);
  check_one_dtype(comm, "all_to_all", out, in);
  Parts parts{.sent = count_parts(comm, in, in_rows, "in_rows"),
              .received = count_parts(comm, out, out_rows, "out_rows")};
  if (out_rows.empty() && in_rows.empty() && out.numel() != in.numel()) {
    refuse_call(comm, "all_to_all",
                text(in.numel(), " elements in and ", out.numel(),
                     " out; legal: as many, or in_rows and out_rows"));
  }
  const auto me = static_cast<size_t>(comm.rank());
  if (parts.sent[me] != parts.received[me]) {
    refuse_call(comm, "all_to_all",
                text("a rank sends itself ", parts.sent[me], " elements and takes ",
                     parts.received[me], " from itself; legal: as many"));
  }
  const auto overlap = at::get_overlap_status(out, in);
  if (overlap == at::MemOverlapStatus::Full || overlap == at::MemOverlapStatus::Partial)
    refuse_call(comm, "all_to_all", "in and out overlap; legal: memory apart");
  return parts;
}

void check_exchange(const Communicator& comm, std::span<const Transfer> sends,
                    std::span<const Transfer> receives) {
  for (const auto& send : sends) check_tensor(comm, "exchange", send.tensor);
  for (const auto& receive : receives) check_written(comm, "exchange", receive.tensor);
  for (const auto& list : {sends, receives}) {
    for (const auto& transfer : list) {
      if (transfer.peer >= 0 && transfer.peer < comm.size()) continue;
      refuse_call(comm, "exchange",
                  text("peer ", transfer.peer, "; legal: 0 to ", comm.size() - 1));
    }
  }
  if (sends.empty() && receives.empty()) return;
  const Tensor& first = (sends.empty() ? receives : sends).front().tensor;
  for (const auto& list : {sends, receives})
    for (const auto& transfer : list)
      check_one_device(comm, "exchange", first, transfer.tensor);
  check_own_transfers(comm, sends, receives);
}

void check_allocate(const Communicator& comm, at::IntArrayRef shape,
                    at::ScalarType dtype, at::Device device) {
  if (!is_legal(comm, device))
    refuse_call(comm, "allocate",
                text("device ", device.str(), "; legal: ", legal_devices(comm)));
  if (dtype == at::ScalarType::Undefined)
    refuse_call(comm, "allocate", "dtype Undefined; legal: any other");
  int64_t most = std::numeric_limits<int64_t>::max() /
                 static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) {
    if (size < 0)
      refuse_call(comm, "allocate", text("shape ", shape, "; legal: sizes from 0 on"));
    if (size > most) {
      refuse_call(comm, "allocate",
                  text("shape ", shape, " has more elements than memory has places"));
    }
    if (size > 0) most /= size;
  }
}

}  // namespace cohort
