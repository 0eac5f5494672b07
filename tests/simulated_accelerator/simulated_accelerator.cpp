// A torch backend (PrivateUse1) whose device memory is host memory: limits, peaks and transfers are counted.
//
// Operators run the CPU's own kernels directly on device memory (an alias, not a copy), and fresh outputs are taken
// over as device memory. So the only bytes that ever cross are those that a program asked to be copied.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/unfold_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kMostDevices = 16;
constexpr auto kSim = c10::DeviceType::PrivateUse1;

// ---- the ledger: what each device holds and what crossed ------------------------------------------------------------

struct Crossing {
  std::atomic<int64_t> bytes{0}, count{0};
  void add(int64_t n) { bytes += n; ++count; }
  void clear() { bytes = 0; count = 0; }
};

struct Ledger {
  std::atomic<int64_t> total{0}, used{0}, peak{0}, blocks{0}, overflows{0}, scalars{0};
  Crossing from_host, to_host, from_peer, to_peer;
};

Ledger ledgers[kMostDevices];
std::atomic<int> device_count{0};
std::atomic<int64_t> pinned_bytes{0};
thread_local int current_device = 0;

int checked(c10::DeviceIndex index) {
  if (index < 0) return current_device;
  TORCH_CHECK(index < device_count, "sim:", int(index), " does not exist: there are ", device_count.load(), " simulated devices.");
  return index;
}

std::string mebibytes(int64_t n) {
  char words[48];
  snprintf(words, sizeof words, "%.2f MiB", double(n) / (1 << 20));
  return words;
}

void charge(int device, int64_t n) {
  Ledger& ledger = ledgers[device];
  int64_t used = ledger.used += n;
  if (used > ledger.total) {
    ledger.used -= n;
    ++ledger.overflows;
    C10_THROW_ERROR(OutOfMemoryError, "sim out of memory. Tried to allocate " + mebibytes(n) + ". Device " + std::to_string(device) +
      " has a total capacity of " + mebibytes(ledger.total) + " of which " + mebibytes(ledger.total - (used - n)) + " is free.");
  }
  ++ledger.blocks;
  int64_t peak = ledger.peak;
  while (used > peak && !ledger.peak.compare_exchange_weak(peak, used)) {}
}

struct Block {  // one allocation; owns the host memory behind it, or the CPU storage it was taken over from
  int device;
  int64_t size;
  c10::DataPtr memory;
  c10::Storage adopted;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  ledgers[block->device].used -= block->size;
  --ledgers[block->device].blocks;
  delete block;
}

c10::DataPtr allocate_on(int device, size_t n) {
  c10::Device place(kSim, static_cast<c10::DeviceIndex>(device));
  if (n == 0) return {nullptr, nullptr, &release, place};
  charge(device, n);
  auto* block = new Block{device, int64_t(n), c10::GetCPUAllocator()->allocate(n), {}};
  return {block->memory.get(), block, &release, place};
}

c10::DataPtr adopt(int device, c10::Storage storage) {
  c10::Device place(kSim, static_cast<c10::DeviceIndex>(device));
  int64_t n = storage.nbytes();
  if (n == 0) return {nullptr, nullptr, &release, place};
  charge(device, n);
  void* data = storage.mutable_data();
  return {data, new Block{device, n, {}, std::move(storage)}, &release, place};
}

struct SimAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t n) override { return allocate_on(current_device, n); }
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex d) override { ledgers[checked(d)].peak = ledgers[checked(d)].used.load(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex d) override {
    Ledger& ledger = ledgers[checked(d)];
    return {size_t(ledger.total - ledger.used), size_t(ledger.total)};
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex d) override {
    Ledger& ledger = ledgers[checked(d)];
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*bytes)[0].current = ledger.used;
      (*bytes)[0].peak = ledger.peak;
    }
    stats.allocation[0].current = stats.active[0].current = ledger.blocks;
    stats.num_ooms = ledger.overflows;
    return stats;
  }
};
SimAllocator sim_allocator;

// ---- pinned host memory: plain memory that is known to be pinned -----------------------------------------------------

struct PinnedBlock { c10::DataPtr memory; int64_t size; };
std::mutex& pinned_lock() { static auto* lock = new std::mutex; return *lock; }
std::map<const void*, int64_t>& pinned() { static auto* all = new std::map<const void*, int64_t>; return *all; }

struct PinnedAllocator final : c10::Allocator {
  static void unpin(void* context) {
    auto* block = static_cast<PinnedBlock*>(context);
    { std::lock_guard<std::mutex> hold(pinned_lock()); pinned().erase(block->memory.get()); }
    pinned_bytes -= block->size;
    delete block;
  }
  c10::DataPtr allocate(size_t n) override {
    auto* block = new PinnedBlock{c10::GetCPUAllocator()->allocate(n), int64_t(n)};
    { std::lock_guard<std::mutex> hold(pinned_lock()); pinned()[block->memory.get()] = int64_t(n); }
    pinned_bytes += n;
    return {block->memory.get(), block, &unpin, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }
};
PinnedAllocator pinned_allocator;

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> hold(pinned_lock());
  auto next = pinned().upper_bound(data);
  if (next == pinned().begin()) return false;
  auto block = std::prev(next);
  return data < static_cast<const char*>(block->first) + block->second;
}

// ---- random generators: the CPU's, so that a seed gives the CPU's numbers --------------------------------------------

struct SimGenerator final : c10::GeneratorImpl {
  at::Generator inner;
  SimGenerator(c10::DeviceIndex index, at::Generator cpu)
      : c10::GeneratorImpl({kSim, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), inner(std::move(cpu)) {}
  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { inner.set_offset(offset); }
  uint64_t get_offset() const override { return inner.get_offset(); }
  uint64_t current_seed() const override { return inner.current_seed(); }
  uint64_t seed() override { return inner.seed(); }
  void set_state(const c10::TensorImpl& state) override { inner.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner.unsafeGetGeneratorImpl()->get_state(); }
  SimGenerator* clone_impl() const override { return new SimGenerator(device_.index(), inner.clone()); }
};

// ---- guard, streams and hooks ----------------------------------------------------------------------------------------

thread_local c10::StreamId current_streams[kMostDevices] = {};
std::atomic<c10::StreamId> last_stream{0};

struct SimGuard final : c10::impl::DeviceGuardImplInterface {
  c10::Device at(int index) const { return {kSim, static_cast<c10::DeviceIndex>(index)}; }
  c10::Stream stream(int device, c10::StreamId id) const { return c10::Stream(c10::Stream::UNSAFE, at(device), id); }
  c10::DeviceType type() const override { return kSim; }
  c10::Device exchangeDevice(c10::Device d) const override { int before = current_device; current_device = checked(d.index()); return at(before); }
  c10::Device getDevice() const override { return at(current_device); }
  void setDevice(c10::Device d) const override { current_device = checked(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { if (d.index() >= 0) current_device = d.index(); }
  c10::Stream getStream(c10::Device d) const override { int i = checked(d.index()); return stream(i, current_streams[i]); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream(checked(d.index()), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return stream(checked(d.index()), ++last_stream); }
  c10::Stream getNewStream(c10::Device d, int) const override { return stream(checked(d.index()), ++last_stream); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    int i = checked(s.device().index());
    auto before = stream(i, current_streams[i]);
    current_streams[i] = s.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count.load()); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void synchronizeEvent(void*) const override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0.0; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, SimGuard);

struct SimHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count.load()); }
  void setCurrentDevice(c10::DeviceIndex d) const override { current_device = checked(d); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override {
    auto before = static_cast<c10::DeviceIndex>(current_device);
    current_device = checked(d);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override { return exchangeDevice(d); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex d) const override {
    static auto* all = [] {
      auto* made = new std::vector<at::Generator>;
      for (int i = 0; i < kMostDevices; ++i)
        made->push_back(at::make_generator<SimGenerator>(static_cast<c10::DeviceIndex>(i), at::detail::getDefaultCPUGenerator()));
      return made;
    }();
    return (*all)[checked(d)];
  }
  at::Generator getNewGenerator(c10::DeviceIndex d) const override {
    return at::make_generator<SimGenerator>(static_cast<c10::DeviceIndex>(checked(d)), at::detail::createCPUGenerator());
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t n) const override {
    auto* impl = storage.unsafeGetStorageImpl();
    auto fresh = allocate_on(checked(storage.device().index()), n);
    if (n && impl->nbytes()) std::memcpy(fresh.get(), impl->data(), std::min(n, size_t(impl->nbytes())));
    impl->set_data_ptr_noswap(std::move(fresh));
    impl->set_nbytes(n);
  }
};

// ---- operators: the CPU's kernels on aliases of device memory ----------------------------------------------------------

bool on_sim(const at::Tensor& t) { return t.defined() && t.is_privateuseone(); }

at::Tensor over(const c10::Storage& storage, const at::Tensor& like, c10::DispatchKey key) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) made._set_conj(true);
  if (like.is_neg()) made._set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

c10::Storage cpu_storage_over(const c10::Storage& sim) {
  auto free_reference = [](void* context) { delete static_cast<c10::Storage*>(context); };
  c10::DataPtr data(sim.unsafeGetStorageImpl()->mutable_data(), new c10::Storage(sim), free_reference, c10::Device(c10::kCPU));
  return c10::Storage(c10::Storage::use_byte_size_t(), sim.nbytes(), std::move(data), c10::GetCPUAllocator(), /*resizable=*/true);
}

class Crossover {  // one operator call: device tensors become CPU aliases, results become device tensors
 public:
  explicit Crossover(std::string name) : name_(std::move(name)) {}

  void see(const at::Tensor& t) {
    if (on_sim(t)) see(t.device());
    else if (t.defined() && t.dim() > 0) host_ = true;
  }
  void see(c10::Device d) {
    int index = checked(d.index());
    if (device_ >= 0 && device_ != index) refuse(index);
    device_ = index;
  }
  void check_one_device(bool host_allowed) const { if (device_ >= 0 && host_ && !host_allowed) refuse(-1); }

  at::Tensor to_cpu(const at::Tensor& t) {
    if (!on_sim(t)) { if (t.defined() && t.has_storage()) host_storages_.insert(t.storage().unsafeGetStorageImpl()); return t; }
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == c10::kStrided, "sim holds dense tensors only (", name_, ")");
    for (auto& [original, alias] : tensors_) if (original.is_same(t)) return alias;
    auto alias = over(storage_for(t.storage()), t, c10::DispatchKey::CPU);
    tensors_.emplace_back(t, alias);
    return alias;
  }

  at::Tensor to_sim(const at::Tensor& t) {
    if (!t.defined() || !t.is_cpu()) return t;
    for (auto& [original, alias] : tensors_) if (alias.is_same(t)) return original;
    auto* impl = t.storage().unsafeGetStorageImpl();
    if (host_storages_.count(impl)) return t;
    for (auto& [sim, cpu] : storages_) if (cpu.unsafeGetStorageImpl() == impl) return over(sim, t, c10::DispatchKey::PrivateUse1);
    int64_t n = t.storage().nbytes();
    c10::Storage sim(c10::Storage::use_byte_size_t(), n, adopt(device_, t.storage()), &sim_allocator, /*resizable=*/true);
    storages_.emplace_back(sim, t.storage());
    return over(sim, t, c10::DispatchKey::PrivateUse1);
  }

  void write_back() {  // an `out=` that the kernel resized, or whose memory it replaced
    for (auto& [original, alias] : tensors_) {
      if (alias.storage().data() != original.storage().data()) {
        auto* impl = original.storage().unsafeGetStorageImpl();
        size_t n = alias.storage().nbytes();
        auto fresh = allocate_on(device_, n);
        if (n) std::memcpy(fresh.get(), alias.storage().data(), n);
        impl->set_data_ptr_noswap(std::move(fresh));
        impl->set_nbytes(n);
      }
      if (alias.sizes() != original.sizes() || alias.strides() != original.strides())
        original.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    }
  }

 private:
  [[noreturn]] void refuse(int other) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, sim:", device_, " and ",
                other < 0 ? std::string("cpu") : "sim:" + std::to_string(other), "! (in ", name_, ")");
  }
  c10::Storage storage_for(const c10::Storage& sim) {
    for (auto& [known, cpu] : storages_) if (known.unsafeGetStorageImpl() == sim.unsafeGetStorageImpl()) return cpu;
    storages_.emplace_back(sim, cpu_storage_over(sim));
    return storages_.back().second;
  }

  std::string name_;
  int device_ = -1;
  bool host_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;
  std::set<c10::StorageImpl*> host_storages_;
};

bool takes_host_tensors(const std::string& name) {  // as CUDA does: host indices, lengths and split points
  static const auto* names = new std::set<std::string>{"aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_",
    "aten::_index_put_impl_", "aten::_unsafe_index_put", "aten::_pack_padded_sequence", "aten::tensor_split"};
  return names->count(name) > 0;
}

template <class OnTensor>
void for_each_tensor(const c10::IValue& value, OnTensor&& visit) {
  if (value.isTensor()) visit(value.toTensor());
  else if (value.isTensorList()) for (const at::Tensor& t : value.toTensorList()) visit(t);
  else if (value.isOptionalTensorList()) for (const std::optional<at::Tensor>& t : value.toOptionalTensorList()) { if (t) visit(*t); }
}

template <class Convert>
c10::IValue with_tensors(const c10::IValue& value, Convert&& convert) {
  if (value.isTensor()) return convert(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> made;
    for (const at::Tensor& t : value.toTensorList()) made.push_back(convert(t));
    return made;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> made;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList()) made.push_back(t ? std::optional<at::Tensor>(convert(*t)) : t);
    return made;
  }
  return value;
}

void run_on_alias(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t taken = schema.arguments().size();
  const size_t first = stack->size() - taken;
  Crossover crossover(schema.name());
  for (size_t i = first; i < stack->size(); ++i) {
    for_each_tensor((*stack)[i], [&](const at::Tensor& t) { crossover.see(t); });
    if ((*stack)[i].isDevice() && (*stack)[i].toDevice().type() == kSim) crossover.see((*stack)[i].toDevice());
  }
  crossover.check_one_device(takes_host_tensors(schema.name()));
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isDevice() && value.toDevice().type() == kSim) value = c10::Device(c10::kCPU);
    else if (value.isGenerator() && value.toGenerator().device().type() == kSim)
      value = static_cast<SimGenerator*>(value.toGenerator().unsafeGetGeneratorImpl())->inner;
    else value = with_tensors(value, [&](const at::Tensor& t) { return crossover.to_cpu(t); });
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  crossover.write_back();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    (*stack)[i] = with_tensors((*stack)[i], [&](const at::Tensor& t) { return crossover.to_sim(t); });
}

// Attention in one kernel. torch turns a mask of booleans into numbers before any device's kernel: that copy is device memory.
void run_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr size_t kMask = 3;
  size_t first = stack->size() - op.schema().arguments().size();
  const c10::IValue& mask = (*stack)[first + kMask];
  at::Tensor turned;
  if (mask.isTensor() && mask.toTensor().scalar_type() == at::kBool && on_sim(mask.toTensor()))
    turned = at::empty(mask.toTensor().sizes(), (*stack)[first].toTensor().options());
  run_on_alias(op, stack);
}

at::Tensor cpu_alias(const at::Tensor& t) {
  return on_sim(t) ? over(cpu_storage_over(t.storage()), t, c10::DispatchKey::CPU) : t;
}

void count_crossing(const at::Tensor& from, const at::Tensor& to) {
  int64_t n = to.numel() * int64_t(to.element_size());
  if (n == 0) return;
  if (!on_sim(from)) ledgers[to.device().index()].from_host.add(n);
  else if (!on_sim(to)) ledgers[from.device().index()].to_host.add(n);
  else if (from.device() != to.device()) {
    ledgers[from.device().index()].to_peer.add(n);
    ledgers[to.device().index()].from_peer.add(n);
  }
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  cpu_alias(to).copy_(cpu_alias(from));
  count_crossing(from, to);
  return to;
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(self.device());
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  c10::DeviceGuard guard(on_sim(to) ? to.device() : from.device());
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &sim_allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &sim_allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::cpu::as_strided(self, size, stride, offset);
}

at::Tensor& set_storage_at(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::cpu::set_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  auto elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage_at(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_at(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, allocate_on(self.device().index(), 0), &sim_allocator, true);
  return set_storage_at(self, nothing, 0, {0}, {});
}

at::Scalar read_scalar(const at::Tensor& self) {
  ++ledgers[self.device().index()].scalars;
  return cpu_alias(self).item();
}

// An accelerator's kernel counts whole numbers too, which the CPU's does not.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& least, const at::Scalar& most) {
  at::Tensor counted = at::histc(cpu_alias(self).to(at::kFloat), bins, least, most);
  at::Tensor result = at::empty(counted.sizes(), self.options());
  cpu_alias(result).copy_(counted);
  return result;
}

void record_stream(at::Tensor&, c10::Stream) {}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("as_strided", as_strided);
  m.impl("unfold", at::native::unfold);  // run on an alias, a view of it would not be one in inference mode
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_storage_at);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("record_stream", record_stream);
  m.impl("histc", histc);
  m.impl("_local_scalar_dense", read_scalar);
  // The first two have a generic form, whose last bits differ from the CPU's kernel; convolutions have none. Attention is
  // one kernel, like a real accelerator's: the scores of the whole context are never device memory.
  for (const char* name : {"native_layer_norm", "native_group_norm", "convolution", "convolution_backward"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_alias>());
  m.impl("scaled_dot_product_attention", torch::CppFunction::makeFromBoxedFunction<&run_attention>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_alias>()); }

// copy_ leaves lazy conjugation and negation to the copy itself; resolving them first would copy, and so never end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

extern "C" {

void sim_start() {
  static bool started = false;
  if (started) return;
  started = true;
  at::RegisterPrivateUse1HooksInterface(new SimHooks());
  c10::SetAllocator(kSim, &sim_allocator);
}

void sim_set_devices(int count) { device_count = count; if (current_device >= count) current_device = 0; }
void sim_set_total(int device, int64_t total) { ledgers[device].total = total; }
int sim_device_count() { return device_count; }
int sim_current_device() { return current_device; }
void sim_set_current_device(int device) { current_device = device; }
int64_t sim_pinned_bytes() { return pinned_bytes; }

void sim_read(int device, int64_t* out) {
  Ledger& l = ledgers[device];
  const int64_t values[] = {l.total, l.used, l.peak, l.blocks, l.overflows, l.from_host.bytes, l.from_host.count, l.to_host.bytes,
    l.to_host.count, l.from_peer.bytes, l.from_peer.count, l.to_peer.bytes, l.to_peer.count, l.scalars};
  std::memcpy(out, values, sizeof values);
}

void sim_reset_peak(int device) { ledgers[device].peak = ledgers[device].used.load(); }

void sim_reset_transfers(int device) {
  Ledger& l = ledgers[device];
  for (auto* crossing : {&l.from_host, &l.to_host, &l.from_peer, &l.to_peer}) crossing->clear();
  l.scalars = 0;
}

}  // extern "C"
