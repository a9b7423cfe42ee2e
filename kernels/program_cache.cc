#include "kernels/program_cache.h"

#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernels/op_fields.h"

namespace gemmd::kernels {
namespace {

// Appends what makes up an op: the fields of op_fields.h. Structured bindings name every field of
// what ops have in common: a new one does not compile until it stands here.
class Writer {
 public:
  explicit Writer(std::string& key) : key_(key) {}

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Add(T value) { key_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Add(const std::string& text) {
    Add(text.size());
    key_.append(text);
  }
  void Add(const Dims& dims) {
    const auto& [rank, values] = dims;
    Add(rank);
    for (int64_t value : values) Add(value);
  }
  void Add(const TensorRef& tensor) {
    const auto& [slot, offset_bytes, dtype, shape, strides] = tensor;
    AddAll(slot, offset_bytes, dtype, shape, strides);
  }
  template <class T>
  void Add(const std::optional<T>& value) {
    Add(value.has_value());
    if (value.has_value()) Add(*value);
  }
  void Add(const Operand& operand) {
    const auto& [values, granularity, scales] = operand;
    AddAll(values, granularity, scales);
  }
  void Add(absl::Span<const Operand> operands) {
    Add(operands.size());
    for (const Operand& operand : operands) Add(operand);
  }
  void Add(const Gate& gate) {
    const auto& [activation, period, alpha, limit, up_offset, alone] = gate;
    AddAll(activation, period, alpha, limit, up_offset, alone);
  }

 private:
  template <class... T>
  void AddAll(const T&... values) {
    (Add(values), ...);
  }

  std::string& key_;
};

// What ops count as, by what remembering them takes: four matrices of a table as much as an op.
size_t WeightOf(absl::Span<const Op> ops) {
  size_t matrices = 0;
  for (const Op& op : ops) {
    if (const auto* grouped = std::get_if<GroupedMatmulOp>(&op)) matrices += grouped->table.size();
  }
  return ops.size() + matrices / 4;
}

}  // namespace

std::string KeyOf(absl::Span<const Op> ops) {
  constexpr size_t kBytesOfAMatmul = 512;
  std::string key;
  key.reserve(ops.size() * kBytesOfAMatmul);
  Writer writer(key);
  for (const Op& op : ops) {
    writer.Add(op.index());
    std::visit(
        [&](const auto& kind) {
          ForEachField(kind, [&](const auto& field) { writer.Add(field.value); });
        },
        op);
  }
  return key;
}

ProgramCache::ProgramOr ProgramCache::Get(absl::Span<const Op> ops,
                                          absl::FunctionRef<ProgramOr()> compile) {
  const size_t weight = WeightOf(ops);
  if (weight > max_ops_ / 4) return compile();
  std::string key = KeyOf(ops);
  uint64_t cleared = 0;
  {
    absl::MutexLock lock(&mutex_);
    cleared = cleared_;
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->program;
    }
  }
  ProgramOr program = compile();
  if (!program.ok()) return program;
  Entries forgotten;  // ends after the lock: a program may hold much
  absl::MutexLock lock(&mutex_);
  if (cleared != cleared_) return program;
  const auto [place, added] = by_key_.try_emplace(key);
  if (!added) return place->second->program;  // another thread's, whose runs are remembered
  entries_.push_front({std::move(key), weight, *program});
  place->second = entries_.begin();
  ops_ += weight;
  while (entries_.size() > max_programs_ || ops_ > max_ops_) {
    const auto last = std::prev(entries_.end());
    ops_ -= last->ops;
    by_key_.erase(last->key);
    forgotten.splice(forgotten.begin(), entries_, last);
  }
  return program;
}

void ProgramCache::Clear() {
  Entries forgotten;  // ends after the lock
  absl::MutexLock lock(&mutex_);
  forgotten.swap(entries_);
  by_key_.clear();
  ops_ = 0;
  ++cleared_;
}

size_t ProgramCache::size() const {
  absl::MutexLock lock(&mutex_);
  return entries_.size();
}

}  // namespace gemmd::kernels
