// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/pickle.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using Value = PickleValue;
using Kind = PickleValue::Kind;
using Items = std::vector<Value>;

constexpr int kPickleDepth = 100;
constexpr size_t kLongestName = 1000;

[[noreturn]] void fail_pickle(const std::string& what) {
  throw CheckpointError(text("a pickle that cannot be read: ", what));
}

Value of_int(int64_t number) { return {.kind = Kind::kInt, .number = number}; }
Value of_text(Kind kind, std::string text) {
  Value out{.kind = kind};
  out.letters = std::make_shared<const std::string>(std::move(text));
  return out;
}
// module.name: joined anew each time, so neither is long.
Value of_names(const std::string& module, const std::string& name) {
  if (module.size() + name.size() > kLongestName)
    fail_pickle("a name that is too long");
  return of_text(Kind::kGlobal, module + "." + name);
}
// Puts a value into a container. Depth is bounded, for the sake of the stack that every
// walk over it needs.
void put(PickleItems& into, const Value& value) {
  if (value.items) {
    value.items->inside = true;
    into.depth = std::max(into.depth, value.items->depth + 1);
  }
  if (into.inside || into.depth > kPickleDepth)
    fail_pickle("nested too deep, or in itself");
  into.values.push_back(value);
}

Value of_items(Kind kind, const Items& values = {}) {
  Value out{.kind = kind, .items = std::make_shared<PickleItems>()};
  for (const auto& value : values) put(*out.items, value);
  return out;
}

std::vector<int64_t> sizes_of(const Value& value) {
  if (value.kind != Kind::kTuple) fail_pickle("a shape that is no tuple");
  std::vector<int64_t> out;
  for (const auto& item : value.items->values) {
    if (item.kind != Kind::kInt || item.number < 0)
      fail_pickle("a shape of no numbers");
    out.push_back(item.number);
  }
  return out;
}

// (storage, offset, size, stride, ...) as torch._utils._rebuild_tensor_v2 takes it.
Value rebuilt(const Items& args) {
  if (args.size() < 4 || args[0].kind != Kind::kTensor || args[1].kind != Kind::kInt)
    fail_pickle("a tensor without storage");
  const Tensor& storage = args[0].tensor;
  const auto sizes = sizes_of(args[2]), strides = sizes_of(args[3]);
  const int64_t offset = args[1].number;
  if (sizes.size() != strides.size() || sizes.size() > 64 || offset < 0)
    fail_pickle("sizes and strides that do not fit");
  int64_t room = storage.numel() - offset - 1;  // elements behind the first
  bool empty = false;
  int64_t count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    empty = empty || sizes[d] == 0;
    if (sizes[d] > 1 && strides[d] > 0 && room >= 0)
      room =
          strides[d] <= room / (sizes[d] - 1) ? room - strides[d] * (sizes[d] - 1) : -1;
    if (sizes[d] > 0 && count > (int64_t{1} << 48) / sizes[d])
      fail_pickle("too many elements");
    count *= std::max<int64_t>(sizes[d], 1);
  }
  Value out{.kind = Kind::kTensor};
  if (empty) {
    out.tensor = at::empty(sizes, storage.options());
    return out;
  }
  if (room < 0) fail_pickle("a tensor that leaves its storage");
  // A stride of 0, or one that overlaps, repeats elements.
  if (count > storage.numel())
    fail_pickle(text("a tensor of ", count, " elements in a storage of ",
                     storage.numel(), "; legal: no more than it has"));
  out.tensor = storage.as_strided(sizes, strides, offset);
  return out;
}

// What a function of Python gives for these arguments.
Value called(const Value& function, const Value& args) {
  if (function.kind != Kind::kGlobal || args.kind != Kind::kTuple) return {};
  const std::string& name = function.text();
  const Items& given = args.items->values;
  if (name == "collections.OrderedDict" && given.empty()) return of_items(Kind::kDict);
  if (name == "torch._utils._rebuild_tensor_v2") return rebuilt(given);
  if (name == "torch._utils._rebuild_parameter" && !given.empty()) return given[0];
  if (name == "torch.Size" && given.size() == 1) return given[0];
  return {};
}

class Machine {
 public:
  Machine(std::string_view bytes,
          const std::function<Tensor(const PickleStorage&)>& storage)
      : bytes_(bytes), storage_(storage) {}

  Value run() {
    while (true) {
      const char op = take(1)[0];
      if (op == '.') return pop();
      if (!constant(op) && !container(op) && !memo(op) && !object(op))
        fail_pickle(text("operation ", int{static_cast<unsigned char>(op)}, " at byte ",
                         at_ - 1));
    }
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) fail_pickle("it ends too early");
    const auto out = bytes_.substr(at_, count);
    at_ += count;
    return out;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail_pickle("it ends too early");
    const std::string out(take(end - at_));
    ++at_;
    return out;
  }

  void push(Value value) { stack_.push_back(std::move(value)); }
  Value pop() {
    if (stack_.empty() || (!marks_.empty() && marks_.back() >= stack_.size()))
      fail_pickle("it takes what is not there");
    Value value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  Items pop_to_mark() {
    if (marks_.empty()) fail_pickle("it takes what is not there");
    Items out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
              stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  Items pop_count(size_t count) {
    Items out(count);
    for (size_t i = count; i > 0; --i) out[i - 1] = pop();
    return out;
  }

  int64_t long_number() {
    const auto digits = take(number<uint8_t>());
    if (digits.size() > 8) return std::numeric_limits<int64_t>::max();
    // Little-endian, two's complement.
    uint64_t value = !digits.empty() && (digits.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, digits.data(), digits.size());
    return static_cast<int64_t>(value);
  }

  bool constant(char op) {
    switch (op) {
      case '\x80':  // PROTO
        if (number<uint8_t>() > 5) fail_pickle("a protocol above 5");
        return true;
      case '\x95':  // FRAME
        (void)number<uint64_t>();
        return true;
      case 'N':
        return push({}), true;
      case '\x88':
        return push(of_int(1)), true;
      case '\x89':
        return push(of_int(0)), true;
      case 'J':
        return push(of_int(number<int32_t>())), true;
      case 'K':
        return push(of_int(number<uint8_t>())), true;
      case 'M':
        return push(of_int(number<uint16_t>())), true;
      case '\x8a':  // LONG1
        return push(of_int(long_number())), true;
      case 'G':  // BINFLOAT
        (void)take(8);
        return push({}), true;
      case 'X':
        return push(of_text(Kind::kText, std::string(take(number<uint32_t>())))), true;
      case '\x8c':
        return push(of_text(Kind::kText, std::string(take(number<uint8_t>())))), true;
      default:
        return false;
    }
  }

  bool container(char op) {
    switch (op) {
      case '(':
        return marks_.push_back(stack_.size()), true;
      case ')':
        return push(of_items(Kind::kTuple)), true;
      case ']':
        return push(of_items(Kind::kList)), true;
      case '}':
        return push(of_items(Kind::kDict)), true;
      case 't':
        return push(of_items(Kind::kTuple, pop_to_mark())), true;
      case '\x85':
      case '\x86':
      case '\x87':
        return push(of_items(Kind::kTuple, pop_count(op - '\x84'))), true;
      case 'a':
        return add(pop_count(1)), true;
      case 'e':
      case 'u':
        return add(pop_to_mark()), true;
      case 's':
        return add(pop_count(2)), true;
      default:
        return false;
    }
  }

  // To the list or dictionary on top; to anything else it means nothing here.
  void add(const Items& items) {
    if (stack_.empty()) fail_pickle("it takes what is not there");
    const Value& top = stack_.back();
    if (top.kind != Kind::kList && top.kind != Kind::kDict) return;
    if (top.kind == Kind::kDict && items.size() % 2 != 0)
      fail_pickle("a key without a value");
    for (const auto& item : items) put(*top.items, item);
  }

  bool memo(char op) {
    switch (op) {
      case 'q':
        return remember(number<uint8_t>()), true;
      case 'r':
        return remember(number<uint32_t>()), true;
      case '\x94':  // MEMOIZE
        return remember(static_cast<uint32_t>(memo_.size())), true;
      case 'h':
        return recall(number<uint8_t>()), true;
      case 'j':
        return recall(number<uint32_t>()), true;
      default:
        return false;
    }
  }
  void remember(uint32_t key) {
    if (stack_.empty()) fail_pickle("it takes what is not there");
    memo_[key] = stack_.back();
  }
  void recall(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail_pickle("it names what is not there");
    push(found->second);
  }

  bool object(char op) {
    switch (op) {
      case 'c': {
        const std::string module = line();
        return push(of_names(module, line())), true;
      }
      case '\x93': {  // STACK_GLOBAL
        const Items names = pop_count(2);
        return push(of_names(names[0].text(), names[1].text())), true;
      }
      case 'R':
      case '\x81': {  // REDUCE, NEWOBJ
        const Items call = pop_count(2);
        return push(called(call[0], call[1])), true;
      }
      case 'b':  // BUILD: attributes of the object below, _metadata of a state_dict
        return (void)pop(), true;
      case 'Q':
        return push(stored(pop())), true;
      default:
        return false;
    }
  }

  // ("storage", torch.FloatStorage, key, place, elements)
  Value stored(const Value& id) {
    if (id.kind != Kind::kTuple || id.items->values.size() < 5)
      fail_pickle("a reference that is no storage");
    const Items& parts = id.items->values;
    if (parts[0].text() != "storage" || parts[4].number < 0)
      fail_pickle("a reference that is no storage");
    Value out{.kind = Kind::kTensor};
    out.tensor = storage_({parts[1].text(), parts[2].text(), parts[4].number});
    return out;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  const std::function<Tensor(const PickleStorage&)>& storage_;
  Items stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, Value> memo_;
};

}  // namespace

const std::string& PickleValue::text() const {
  static const std::string none;
  return letters ? *letters : none;
}

PickleValue read_pickle(std::string_view bytes,
                        const std::function<Tensor(const PickleStorage&)>& storage) {
  return Machine(bytes, storage).run();
}

}  // namespace cohort
