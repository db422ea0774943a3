#include "src/engine/llama/llama_memory_view.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "llama-context.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"
#include "llama-model.h"
#include "llama.h"

namespace parkade {
namespace {

std::string ReadableTypeName(const std::type_info& type) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 && demangled != nullptr ? demangled : type.name();
  std::free(demangled);
  return name;
}

// Only the exact type: a class derived from a known one may write more.
template <typename T>
T* ExactCast(llama_memory_i* memory) {
  return typeid(*memory) == typeid(T) ? static_cast<T*>(memory) : nullptr;
}

std::string DeviceOf(const ggml_tensor* tensor) {
  if (tensor == nullptr || tensor->buffer == nullptr) return "";
  ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(tensor->buffer);
  ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
  return device != nullptr ? ggml_backend_dev_name(device)
                           : ggml_backend_buffer_name(tensor->buffer);
}

// "cache_k_l12" or its view "cache_k_l12 (view)": 12; -1 for any other name.
int LayerInName(const ggml_tensor* tensor) {
  const std::string_view name = ggml_get_name(tensor);
  const std::size_t at = name.rfind("_l");
  int layer = -1;
  if (!name.starts_with("cache_") || at == std::string_view::npos) return -1;
  return std::sscanf(name.data() + at, "_l%d", &layer) == 1 ? layer : -1;
}

absl::Status CheckModel(const llama_model& model, llama_memory_i* memory) {
  if (memory == nullptr) {
    return absl::UnimplementedError("this model keeps no memory between batches (an encoder)");
  }
  if (llama_model_has_encoder(&model)) {
    return absl::UnimplementedError("models with an encoder can't be cached");
  }
  const llama_split_mode mode = model.split_mode();
  if (mode == LLAMA_SPLIT_MODE_ROW || mode == LLAMA_SPLIT_MODE_TENSOR) {
    return absl::UnimplementedError(absl::StrCat("split mode ",
                                                 mode == LLAMA_SPLIT_MODE_ROW ? "row" : "tensor",
                                                 " can't be cached; use --split-mode layer"));
  }
  return absl::OkStatus();
}

std::uint32_t Rotation(ggml_tensor* (llama_kv_cache::*build)(ggml_context*) const,
                       const llama_kv_cache& cache) {
  ggml_init_params params = {2 * ggml_tensor_overhead(), nullptr, /*no_alloc=*/true};
  ggml_context* scratch = ggml_init(params);
  const ggml_tensor* rotation = (cache.*build)(scratch);
  const auto size = rotation == nullptr ? 0u : static_cast<std::uint32_t>(rotation->ne[0]);
  ggml_free(scratch);
  return size;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LlamaMemoryView>> LlamaMemoryView::Create(
    llama_context* context, const LlamaViewOptions& options) {
  std::shared_ptr<LlamaMemoryView> view(new LlamaMemoryView());
  view->context_ = context;
  view->swa_full_ = options.swa_full;
  view->copiers_ = std::make_unique<LlamaCopiers>(options.copiers, options.tell);
  llama_memory_i* memory = llama_get_memory(context);
  absl::Status status = CheckModel(context->get_model(), memory);
  if (!status.ok()) return status;
  view->memory_name_ = ReadableTypeName(typeid(*memory));
  try {
    status = view->AddSections();
    if (!status.ok()) return status;
    view->BuildLayout();
    status = view->BuildStages();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("reading the memory's layout: ", error.what()));
  }
  if (!status.ok()) return status;
  return std::shared_ptr<const LlamaMemoryView>(std::move(view));
}

absl::Status LlamaMemoryView::AddSections() {
  llama_memory_i* memory = llama_get_memory(context_);
  const llama_hparams& hparams = context_->get_model().hparams;
  llama_kv_cache* kv = ExactCast<llama_kv_cache>(memory);
  llama_kv_cache_iswa* iswa = ExactCast<llama_kv_cache_iswa>(memory);
  llama_memory_recurrent* state = ExactCast<llama_memory_recurrent>(memory);
  if (auto* hybrid = ExactCast<llama_memory_hybrid>(memory)) {
    kv = hybrid->get_mem_attn();
    state = hybrid->get_mem_recr();
  } else if (auto* hybrid_iswa = ExactCast<llama_memory_hybrid_iswa>(memory)) {
    iswa = hybrid_iswa->get_mem_attn();
    state = hybrid_iswa->get_mem_recr();
  }
  if (kv == nullptr && iswa == nullptr && state == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("memory of kind ", memory_name_, " can't be cached"));
  }
  absl::Status status;
  if (kv != nullptr) status = AddKv(kv, RowGroup::kFull);
  if (status.ok() && iswa != nullptr) {
    const bool full = swa_full_ && iswa->get_base()->get_size() == iswa->get_swa()->get_size();
    status = AddKv(iswa->get_base(), RowGroup::kFull);
    if (status.ok()) status = AddKv(iswa->get_swa(), full ? RowGroup::kFull : RowGroup::kWindow);
    if (!full) layout_.window_tokens = hparams.n_swa;
  }
  if (status.ok() && state != nullptr) status = AddState(state);
  return status;
}

absl::Status LlamaMemoryView::AddKv(llama_kv_cache* cache, RowGroup group) {
  const llama_hparams& hparams = context_->get_model().hparams;
  if (!context_->get_cparams().flash_attn) {
    return absl::UnimplementedError("flash attention is off: values are stored transposed");
  }
  if (hparams.ple_n_heads > 0) {
    return absl::UnimplementedError("a memory with token ids in its cells can't be cached");
  }
  wide_ = wide_ || cache->has_cell_ext();
  const std::vector<std::uint32_t> ids = cache->get_layer_ids();
  if (ids.empty()) return absl::OkStatus();  // a window model with one kind of layer only
  if (!std::is_sorted(ids.begin(), ids.end())) {
    return absl::UnimplementedError("layers of a cache are not in ascending order");
  }
  MemorySection section;
  section.group = group;
  section.memory = cache;
  section.wide = cache->has_cell_ext();
  section.layers = static_cast<std::uint32_t>(ids.size());
  if (group == RowGroup::kWindow) {
    section.mask_tokens = hparams.n_swa;
    section.mask_type = hparams.swa_type;
  }
  std::vector<std::string> devices;
  for (PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
    const bool key = kind == PlaneKind::kKey;
    if (!key && hparams.is_mla()) continue;  // one compressed row serves as both
    const ggml_type type = key ? cache->type_k() : cache->type_v();
    for (std::uint32_t id : ids) {
      const auto layer = static_cast<int>(id);
      const ggml_tensor* storage = cache->get_k_storage(layer);
      if (key && LayerInName(storage) != layer) {
        return absl::UnimplementedError(
            absl::StrCat("layer ", layer, " is kept in tensor ", ggml_get_name(storage)));
      }
      const std::uint32_t elements = key ? hparams.n_embd_k_gqa(id) : hparams.n_embd_v_gqa(id);
      section.planes.push_back(
          {kind, static_cast<std::uint16_t>(id), type, ggml_row_size(type, elements), -1});
      devices.push_back(DeviceOf(storage));
    }
  }
  if (!WritesState(section)) {
    return absl::UnimplementedError(
        "this memory is another context's; only that one can be cached");
  }
  sections_.push_back(std::move(section));
  devices_.push_back(std::move(devices));
  return absl::OkStatus();
}

absl::Status LlamaMemoryView::AddState(llama_memory_recurrent* memory) {
  const llama_hparams& hparams = context_->get_model().hparams;
  MemorySection section;
  section.kind = MemorySection::Kind::kState;
  section.group = RowGroup::kState;
  section.memory = memory;
  section.layers = hparams.n_layer();
  std::vector<std::string> devices;
  auto add = [&](PlaneKind kind, std::size_t layer, const ggml_tensor* tensor,
                 std::uint32_t elements) {
    if (tensor == nullptr) return;
    section.planes.push_back({kind, static_cast<std::uint16_t>(layer), tensor->type,
                              ggml_row_size(tensor->type, elements), -1});
    devices.push_back(DeviceOf(tensor));
  };
  // The order of the stream: R and P together, then S.
  for (std::size_t layer = 0; layer < memory->r_l.size(); ++layer) {
    add(PlaneKind::kConv, layer, memory->r_l[layer], hparams.n_embd_r());
    if (memory->r_l[layer] == nullptr) continue;
    add(PlaneKind::kExtra, layer, memory->p_l[layer], hparams.ple_conv_state());
  }
  for (std::size_t layer = 0; layer < memory->s_l.size(); ++layer) {
    add(PlaneKind::kState, layer, memory->s_l[layer], hparams.n_embd_s());
  }
  if (section.planes.empty()) return absl::OkStatus();
  sections_.push_back(std::move(section));
  devices_.push_back(std::move(devices));
  return absl::OkStatus();
}

void LlamaMemoryView::BuildLayout() {
  struct Entry {
    Plane plane;
    PlanePlace place;
  };
  std::vector<Entry> entries;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    const MemorySection& section = sections_[s];
    for (std::size_t p = 0; p < section.planes.size(); ++p) {
      const WirePlane& wire = section.planes[p];
      if (wire.row_bytes == 0) continue;
      entries.push_back({{section.group, wire.kind, wire.layer,
                          static_cast<std::uint32_t>(wire.type), wire.row_bytes},
                         {s, p}});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& left, const Entry& right) {
    return std::tuple(left.plane.group, left.plane.layer, left.plane.kind) <
           std::tuple(right.plane.group, right.plane.layer, right.plane.kind);
  });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const PlanePlace& place = entries[i].place;
    sections_[place.section].planes[place.wire_plane].layout_plane = static_cast<int>(i);
    layout_.planes.push_back(entries[i].plane);
    places_.push_back(place);
  }
  if (!layout_.has_group(RowGroup::kWindow)) layout_.window_tokens = 0;
}

absl::Status LlamaMemoryView::BuildStages() {
  std::map<std::uint16_t, std::string> device_of_layer;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t p = 0; p < sections_[s].planes.size(); ++p) {
      const std::uint16_t layer = sections_[s].planes[p].layer;
      auto [it, added] = device_of_layer.emplace(layer, devices_[s][p]);
      if (!added && it->second != devices_[s][p]) {
        return absl::UnimplementedError(absl::StrCat(
            "layer ", layer, " is kept on two devices: ", it->second, " and ", devices_[s][p]));
      }
    }
  }
  for (const auto& [layer, device] : device_of_layer) {
    if (stages_.stages.empty() || stages_.stages.back().device != device) {
      stages_.stages.push_back({device, {}});
    }
    stages_.stages.back().layers.push_back(layer);
  }
  if (stages_.stages.empty()) return absl::UnimplementedError("this memory has no tensors");
  return absl::OkStatus();
}

std::vector<std::uint32_t> LlamaMemoryView::key_rotations() const {
  std::vector<std::uint32_t> sizes;
  for (const MemorySection& section : sections_) {
    if (section.kind != MemorySection::Kind::kKv) continue;
    sizes.push_back(Rotation(&llama_kv_cache::build_input_k_rot,
                             *static_cast<llama_kv_cache*>(section.memory)));
  }
  return sizes;
}

std::vector<std::uint32_t> LlamaMemoryView::value_rotations() const {
  std::vector<std::uint32_t> sizes;
  for (const MemorySection& section : sections_) {
    if (section.kind != MemorySection::Kind::kKv) continue;
    sizes.push_back(Rotation(&llama_kv_cache::build_input_v_rot,
                             *static_cast<llama_kv_cache*>(section.memory)));
  }
  return sizes;
}

absl::Status LlamaMemoryView::Settle() const {
  try {
    llama_synchronize(context_);
    context_->memory_update(false);
    llama_synchronize(context_);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("applying pending memory updates: ", error.what()));
  }
  return absl::OkStatus();
}

void LlamaMemoryView::ClearSequence(std::int32_t sequence) const {
  // The whole memory, not section by section: a cache without layers is no section of ours, but
  // has cells.
  llama_memory_seq_rm(llama_get_memory(context_), sequence, -1, -1);
}

namespace {

// Of the start-up check's two tokens.
const TokenPlaces* CheckPlaces(bool wide) {
  static const auto* places = new TokenPlaces(std::vector<llama_token>{0, 1});
  return wide ? places : nullptr;
}

}  // namespace

absl::Status LlamaMemoryView::CheckSection(const MemorySection& section, const SectionRows& placed,
                                           std::int32_t sequence) const {
  const bool kv = section.kind == MemorySection::Kind::kKv;
  const std::uint32_t tokens = kv ? placed.range.end : placed.range.begin;
  absl::StatusOr<SectionRows> found = LocateRows(section, sequence, tokens, CheckPlaces(wide_));
  if (!found.ok()) return found.status();
  if (found->range != placed.range || found->cells != placed.cells ||
      found->tensors != placed.tensors) {
    return absl::InternalError("rows were not found where they were placed");
  }
  const auto& devices = devices_[static_cast<std::size_t>(&section - sections_.data())];
  for (std::size_t p = 0; p < section.planes.size(); ++p) {
    const WirePlane& plane = section.planes[p];
    const ggml_tensor* tensor = found->tensors[p];
    if (LayerInName(tensor) != plane.layer) {
      return absl::InternalError(absl::StrCat("tensor ", ggml_get_name(tensor),
                                              " stands where layer ", plane.layer, " should"));
    }
    if (plane.row_bytes != 0 && tensor->nb[1] != plane.row_bytes) {
      return absl::InternalError(absl::StrCat("rows of ", ggml_get_name(tensor), " are padded"));
    }
    if (DeviceOf(tensor) != devices[p]) {
      return absl::InternalError(absl::StrCat(ggml_get_name(tensor), " is on another device"));
    }
  }
  return absl::OkStatus();
}

absl::Status LlamaMemoryView::CheckLayout(std::int32_t sequence) const {
  absl::Status status = Settle();
  for (std::size_t s = 0; s < sections_.size() && status.ok(); ++s) {
    const MemorySection& section = sections_[s];
    if (section.memory->seq_pos_max(sequence) >= 0) {
      return absl::FailedPreconditionError("the sequence for the start-up check is not empty");
    }
    const bool kv = section.kind == MemorySection::Kind::kKv;
    absl::StatusOr<SectionRows> placed =
        PlaceRows(section, sequence, kv ? TokenRange{0, 2} : TokenRange{2, 3}, CheckPlaces(wide_));
    status = placed.ok() ? CheckSection(section, *placed, sequence) : placed.status();
  }
  ClearSequence(sequence);
  if (status.ok()) return status;
  return absl::FailedPreconditionError(absl::StrCat("start-up check: ", status.message()));
}

}  // namespace parkade
