#include "tests/support/host_cuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "src/device/cuda_blocks.h"

// Handles are ours to define.
struct CUevent_st {
  // Whether what was last recorded has happened; who waited for an earlier one waits for that.
  std::shared_ptr<bool> happened = std::make_shared<bool>(true);
};

namespace parkade::test::host_cuda {
namespace {

struct Step {
  std::shared_ptr<bool> wait;  // until it is true; may be null
  std::function<void()> work;  // may be null
};

struct World {
  int devices = 0;
  std::mt19937_64 random;
  std::uint64_t calls = 0;
  std::uint64_t fail_after = UINT64_MAX;
  std::uint64_t fail_once = UINT64_MAX;
  std::map<cudaStream_t, std::deque<Step>> streams;
  std::set<cudaEvent_t> events;
  std::map<const char*, std::size_t> device_memory;
  std::map<const char*, int> device_of;  // those of device_memory
  std::map<const char*, std::size_t> pinned_memory;
};

// Of the calling thread.
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// Of the world. Recursive: what a stream runs may call back.
std::recursive_mutex& TheMutex() {
  static std::recursive_mutex mutex;
  return mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;

World& TheWorld() {
  static World world;
  return world;
}

[[noreturn]] void Misuse(const char* what) {
  std::fprintf(stderr, "host_cuda: %s\n", what);
  std::abort();
}

bool Within(const std::map<const char*, std::size_t>& memory, const void* pointer,
            std::size_t bytes) {
  const char* at = static_cast<const char*>(pointer);
  auto found = memory.upper_bound(at);
  if (found == memory.begin()) return false;
  --found;
  return at + bytes <= found->first + found->second;
}

// Runs one step of a random stream whose first step may run; false: there is none.
bool RunOne() {
  World& world = TheWorld();
  std::vector<std::deque<Step>*> able;
  for (auto& [stream, steps] : world.streams) {
    if (steps.empty()) continue;
    const Step& first = steps.front();
    if (first.wait == nullptr || *first.wait) able.push_back(&steps);
  }
  if (able.empty()) return false;
  std::deque<Step>& steps = *able[world.random() % able.size()];
  const Step step = std::move(steps.front());
  steps.pop_front();
  if (step.work) step.work();
  return true;
}

void RunUntil(const std::function<bool()>& done) {
  while (!done()) {
    if (!RunOne()) Misuse("waiting for what is never going to happen");
  }
}

// Each call that can fail begins so.
cudaError_t Enter() {
  World& world = TheWorld();
  cudaError_t error = cudaSuccess;
  const std::uint64_t call = world.calls++;
  if (world.devices == 0) {
    error = cudaErrorNoDevice;
  } else if (call >= world.fail_after) {
    error = cudaErrorIllegalAddress;
  } else if (call == world.fail_once) {
    error = cudaErrorMemoryAllocation;
  }
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Calls that end a graph which another thread is capturing, unless the thread says otherwise.
void CheckCapture() {
  if (capture_mode != cudaStreamCaptureModeRelaxed) Misuse("this would end an engine's graph");
}

void Add(cudaStream_t stream, Step step) {
  World& world = TheWorld();
  if (stream != nullptr && !world.streams.contains(stream)) Misuse("no such stream");
  world.streams[stream].push_back(std::move(step));
}

void CopyOnHost(const CopyBlock& block, char* packed, bool pack) {
  if (!Within(TheWorld().device_memory, block.device,
              (block.rows - 1) * block.stride + block.width)) {
    Misuse("a kernel leaves the card's memory");
  }
  char* host_side = packed + block.host_offset;
  for (std::uint64_t row = 0; row < block.rows; ++row) {
    char* place = block.device + row * block.stride;
    char* other = host_side + row * block.width;
    std::memcpy(pack ? other : place, pack ? place : other, block.width);
  }
}

}  // namespace

void Reset(int devices, std::uint64_t seed) {
  const Lock lock(TheMutex());
  TheWorld() = World();
  last_error = cudaSuccess;
  TheWorld().devices = devices;
  TheWorld().random.seed(seed);
}

void FailAfter(std::uint64_t calls) {
  const Lock lock(TheMutex());
  TheWorld().fail_after = TheWorld().calls + calls;
}

void FailOnce(std::uint64_t calls) {
  const Lock lock(TheMutex());
  TheWorld().fail_once = TheWorld().calls + calls;
}

cudaError_t TakeLastError() { return std::exchange(last_error, cudaSuccess); }

void RunAll() {
  const Lock lock(TheMutex());
  while (RunOne()) {
  }
}

std::uint64_t calls() {
  const Lock lock(TheMutex());
  return TheWorld().calls;
}

void Queue(cudaStream_t stream, std::function<void()> work) {
  const Lock lock(TheMutex());
  Add(stream, Step{nullptr, std::move(work)});
}

std::size_t live() {
  const Lock lock(TheMutex());
  const World& world = TheWorld();
  std::size_t streams = 0;
  for (const auto& [stream, steps] : world.streams) streams += stream != nullptr;
  return streams + world.events.size() + world.device_memory.size() + world.pinned_memory.size();
}

}  // namespace parkade::test::host_cuda

namespace parkade {

namespace host = test::host_cuda;

cudaError_t LaunchCopyBlocks(const CopyBlock* table, std::uint32_t count, char* packed, bool pack,
                             cudaStream_t stream) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  if (!host::Within(host::TheWorld().pinned_memory, table, count * sizeof(CopyBlock))) {
    host::Misuse("the card can't read the table");
  }
  host::Queue(stream, [=] {
    for (std::uint32_t i = 0; i < count; ++i) host::CopyOnHost(table[i], packed, pack);
  });
  return cudaSuccess;
}

}  // namespace parkade

namespace host = parkade::test::host_cuda;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const host::Lock lock(host::TheMutex());
  *count = host::TheWorld().devices;
  return host::Enter();
}

cudaError_t cudaGetDevice(int* device) {
  const host::Lock lock(host::TheMutex());
  *device = host::current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const host::Lock lock(host::TheMutex());
  if (device < 0 || device >= host::TheWorld().devices) return cudaErrorInvalidDevice;
  host::current_device = device;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, host::capture_mode);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return host::TakeLastError(); }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an illegal address";
}
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfATest"; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  static std::uintptr_t next = 0;
  *stream = reinterpret_cast<cudaStream_t>(++next);
  host::TheWorld().streams[*stream];
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const host::Lock lock(host::TheMutex());
  host::TheWorld().streams.erase(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  *event = new CUevent_st();
  host::TheWorld().events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const host::Lock lock(host::TheMutex());
  host::TheWorld().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  event->happened = std::make_shared<bool>(false);
  host::Queue(stream, [happened = event->happened] { *happened = true; });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  host::Add(stream, host::Step{event->happened, nullptr});
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const host::Lock lock(host::TheMutex());
  host::CheckCapture();
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  host::RunUntil([happened = event->happened] { return *happened; });
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const host::Lock lock(host::TheMutex());
  host::CheckCapture();
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  host::RunUntil([stream] { return host::TheWorld().streams[stream].empty(); });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  *memory = std::malloc(bytes);
  host::TheWorld().device_memory[static_cast<char*>(*memory)] = bytes;
  host::TheWorld().device_of[static_cast<char*>(*memory)] = host::current_device;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const host::Lock lock(host::TheMutex());
  host::TheWorld().device_memory.erase(static_cast<char*>(memory));
  host::TheWorld().device_of.erase(static_cast<char*>(memory));
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned int) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  *memory = std::malloc(bytes);
  host::TheWorld().pinned_memory[static_cast<char*>(*memory)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  const host::Lock lock(host::TheMutex());
  host::TheWorld().pinned_memory.erase(static_cast<char*>(memory));
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const host::Lock lock(host::TheMutex());
  *attributes = {};
  const host::World& world = host::TheWorld();
  if (host::Within(world.device_memory, pointer, 1)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device =
        std::prev(world.device_of.upper_bound(static_cast<const char*>(pointer)))->second;
    return cudaSuccess;
  }
  const bool pinned = host::Within(world.pinned_memory, pointer, 1);
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned int) {
  const host::Lock lock(host::TheMutex());
  host::CheckCapture();
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  host::TheWorld().pinned_memory[static_cast<char*>(memory)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  const host::Lock lock(host::TheMutex());
  host::CheckCapture();
  if (host::TheWorld().pinned_memory.erase(static_cast<char*>(memory)) == 0) {
    host::Misuse("memory that is not page-locked is unlocked");
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* address, int bytes, int device) {
  const host::Lock lock(host::TheMutex());
  std::snprintf(address, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const host::Lock lock(host::TheMutex());
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  const bool in = kind == cudaMemcpyHostToDevice;
  const host::World& world = host::TheWorld();
  if (!host::Within(world.pinned_memory, in ? from : to, bytes)) {
    host::Misuse("memory that is not page-locked is not copied behind the call");
  }
  if (!host::Within(world.device_memory, in ? to : from, bytes)) {
    host::Misuse("a copy leaves the card's memory");
  }
  host::Queue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const host::Lock lock(host::TheMutex());
  if (cudaError_t error = host::Enter(); error != cudaSuccess) return error;
  host::Queue(stream, [=] { function(data); });
  return cudaSuccess;
}

}  // extern "C"
