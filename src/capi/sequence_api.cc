// parkade.h: what an engine says about its model and its memory.

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/capi/border.h"
#include "src/capi/handles.h"
#include "src/format/checksum.h"

namespace parkade::capi {
namespace {

constexpr std::string_view kLayoutField = "layout";
// The capture buffer is never smaller than three times this, so that each token fits.
constexpr std::uint64_t kMostRowBytes = 8ull << 20;
// A recurrent state may be spread over parks.
constexpr std::uint64_t kMostStateBytes = 64ull << 30;

absl::Status ReadFields(const parkade_model_options& options, Identity* identity) {
  if (options.field_count > 0 && options.fields == nullptr) return NullArgument("fields");
  for (std::size_t i = 0; i < options.field_count; ++i) {
    const std::string name = OrEmpty(options.fields[i].name);
    if (name.empty()) return absl::InvalidArgumentError(absl::StrCat("field ", i, " has no name"));
    if (options.fields[i].value == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("field ", name, " has no value"));
    }
    if (name == kLayoutField) {
      return absl::InvalidArgumentError("the field \"layout\" is set by the library");
    }
    for (const IdentityField& field : identity->fields()) {
      if (field.name == name) {
        return absl::InvalidArgumentError(absl::StrCat("field ", name, " is there twice"));
      }
    }
    identity->Set(name, options.fields[i].value);
  }
  if (options.field_count > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("a model without fields is every model");
}

absl::Status CheckPlane(const parkade_plane& plane, std::size_t index) {
  const auto wrong = [index](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("plane ", index, ": ", what));
  };
  const int group = NumberOf(plane.group);
  if (group < PARKADE_FULL || group > PARKADE_STATE) return wrong("no such group");
  const int kind = NumberOf(plane.kind);
  if (kind < PARKADE_KEY || kind > PARKADE_EXTRA) return wrong("no such kind");
  if (plane.layer >= kDraftLayers) return wrong("layers are below 32768");
  if (plane.row_bytes == 0) return wrong("row_bytes is 0");
  const bool state = group == PARKADE_STATE;
  if (plane.row_bytes > (state ? kMostStateBytes : kMostRowBytes)) return wrong("row too long");
  return absl::OkStatus();
}

absl::Status CheckRowSums(const StateLayout& layout) {
  std::uint64_t sums[3] = {};
  for (const Plane& plane : layout.planes) sums[static_cast<int>(plane.group)] += plane.row_bytes;
  if (sums[0] > kMostRowBytes || sums[1] > kMostRowBytes) {
    return absl::InvalidArgumentError("the rows of one token are more than 8 MiB");
  }
  if (sums[2] > kMostStateBytes) return absl::InvalidArgumentError("states of more than 64 GiB");
  if (layout.has_group(RowGroup::kWindow) != (layout.window_tokens > 0)) {
    return absl::InvalidArgumentError("window_tokens and window planes: one without the other");
  }
  return absl::OkStatus();
}

auto PlaceOf(const Plane& plane) { return std::tuple(plane.group, plane.layer, plane.kind); }

// Fills layout and place_of.
absl::Status ReadPlanes(const parkade_model_options& options, ModelBody* model) {
  if (options.planes == nullptr || options.plane_count == 0) {
    return absl::InvalidArgumentError("a model has planes");
  }
  std::vector<Plane> given;
  for (std::size_t i = 0; i < options.plane_count; ++i) {
    const parkade_plane& plane = options.planes[i];
    if (absl::Status fine = CheckPlane(plane, i); !fine.ok()) return fine;
    given.push_back({static_cast<RowGroup>(plane.group), static_cast<PlaneKind>(plane.kind),
                     plane.layer, plane.element_type, plane.row_bytes});
  }
  std::vector<std::size_t> order(given.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return PlaceOf(given[a]) < PlaceOf(given[b]); });
  model->place_of.resize(given.size());
  for (std::size_t place = 0; place < order.size(); ++place) {
    const Plane& plane = given[order[place]];
    if (place > 0 && PlaceOf(model->layout.planes.back()) == PlaceOf(plane)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "plane ", order[place], ": there is another one of its group, layer and kind"));
    }
    model->layout.planes.push_back(plane);
    model->place_of[order[place]] = place;
  }
  model->layout.window_tokens = options.window_tokens;
  return CheckRowSums(model->layout);
}

// Planes are a part of what must be equal: engines that lay out their rows differently never meet.
std::string LayoutText(const StateLayout& layout) {
  std::string text = absl::StrCat("window ", layout.window_tokens);
  for (const Plane& plane : layout.planes) {
    absl::StrAppend(&text, "; ", static_cast<int>(plane.group), " ", plane.layer, " ",
                    static_cast<int>(plane.kind), " ", plane.element_type, " ", plane.row_bytes);
  }
  return ToHex(Checksum(text));
}

absl::Status OpenModel(const parkade_cache* cache, const parkade_model_options* given,
                       parkade_model** model) {
  if (cache == nullptr) return NullArgument("cache");
  if (model == nullptr) return NullArgument("model");
  const absl::StatusOr<parkade_model_options> options = ReadStruct(given, "options");
  if (!options.ok()) return options.status();
  auto body = std::make_shared<ModelBody>();
  body->cache = cache->body;
  absl::Status read = ReadFields(*options, &body->identity);
  if (read.ok()) read = ReadPlanes(*options, body.get());
  if (!read.ok()) return read;
  body->identity.Set(kLayoutField, LayoutText(body->layout));
  const absl::StatusOr<Digest128> registered = body->Register();
  if (!registered.ok()) return registered.status();
  *model = new parkade_model{std::move(body)};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<StageCopier>> CopierFor(CacheBody& cache,
                                                       const parkade_stage& stage) {
  switch (NumberOf(stage.device)) {
    case PARKADE_HOST:
      return std::shared_ptr<StageCopier>(NewHostCopier());
    case PARKADE_CUDA:
      return cache.CopierOf(stage.ordinal, stage.stream);
  }
  return absl::InvalidArgumentError("no such device");
}

absl::StatusOr<PlaneRows> ReadRows(const parkade_plane_rows& given, const Plane& plane,
                                   std::size_t index) {
  const auto wrong = [index](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("rows of plane ", index, ": ", what));
  };
  constexpr std::uint64_t kMostStride = 1ull << 48;
  PlaneRows rows;
  rows.base = static_cast<char*>(given.base);
  // Of a state there is one row, whatever was said.
  rows.rows = plane.group == RowGroup::kState ? std::min(given.rows, 1u) : given.rows;
  rows.row_bytes = plane.row_bytes;
  rows.row_stride = given.row_stride == 0 ? plane.row_bytes : given.row_stride;
  rows.page_rows = given.page_rows;
  if (rows.base == nullptr && rows.rows > 0) return wrong("base is NULL");
  if (rows.row_stride < plane.row_bytes) return wrong("row_stride is less than row_bytes");
  // As many rows as are counted by it: of a page, or of the plane.
  const std::uint64_t counted = rows.page_rows == 0 ? rows.rows : rows.page_rows;
  if (rows.row_stride > kMostStride / std::max<std::uint64_t>(counted, 1)) {
    return wrong("row_stride is too large");
  }
  if (rows.page_rows == 0) {
    if (given.page_stride != 0 || given.page_count != 0) return wrong("pages without page_rows");
    return rows;
  }
  const std::uint64_t page_bytes =
      (std::uint64_t{rows.page_rows} - 1) * rows.row_stride + plane.row_bytes;
  rows.page_stride = given.page_stride == 0 ? rows.page_rows * rows.row_stride : given.page_stride;
  if (rows.page_stride < page_bytes) return wrong("page_stride is less than a page");
  if (rows.page_stride > kMostStride) return wrong("page_stride is too large");
  if (given.page_count > 0 && given.pages == nullptr) return wrong("pages is NULL");
  const std::uint64_t pages = (std::uint64_t{rows.rows} + rows.page_rows - 1) / rows.page_rows;
  if (given.page_count < pages) return wrong("fewer pages than rows");
  if (given.page_count > 0) rows.pages.assign(given.pages, given.pages + given.page_count);
  return rows;
}

absl::Status SetPlanes(const ModelBody& model, const parkade_plane_rows* planes,
                       std::size_t plane_count, PlaneSequence* sequence) {
  if (planes == nullptr) return NullArgument("planes");
  if (plane_count != model.layout.planes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows of ", plane_count, " planes, the model has ", model.layout.planes.size()));
  }
  std::vector<PlaneRows> placed(plane_count);
  for (std::size_t i = 0; i < plane_count; ++i) {
    const std::size_t place = model.place_of[i];
    absl::StatusOr<PlaneRows> rows = ReadRows(planes[i], model.layout.planes[place], i);
    if (!rows.ok()) return rows.status();
    placed[place] = *std::move(rows);
  }
  return sequence->SetPlanes(std::move(placed));
}

absl::Status OpenSequence(const parkade_model* model, const parkade_sequence_options* given,
                          parkade_sequence** sequence) {
  if (model == nullptr) return NullArgument("model");
  if (sequence == nullptr) return NullArgument("sequence");
  const absl::StatusOr<parkade_sequence_options> options = ReadStruct(given, "options");
  if (!options.ok()) return options.status();
  if (options->stages == nullptr || options->stage_count == 0) {
    return absl::InvalidArgumentError("a sequence has stages");
  }
  StageMap stages;
  std::vector<std::shared_ptr<StageCopier>> copiers;
  for (std::size_t i = 0; i < options->stage_count; ++i) {
    const parkade_stage& stage = options->stages[i];
    if (stage.layers == nullptr && stage.layer_count > 0) return NullArgument("layers");
    absl::StatusOr<std::shared_ptr<StageCopier>> copier = CopierFor(*model->body->cache, stage);
    if (!copier.ok()) return copier.status();
    Stage own;
    own.device = stage.name != nullptr ? stage.name : (*copier)->name();
    own.layers.assign(stage.layers, stage.layers + stage.layer_count);
    stages.stages.push_back(std::move(own));
    copiers.push_back(*std::move(copier));
  }
  absl::StatusOr<std::unique_ptr<PlaneSequence>> rows =
      PlaneSequence::Create(model->body->layout, std::move(stages), std::move(copiers));
  if (!rows.ok()) return rows.status();
  if (options->planes != nullptr || options->plane_count > 0) {
    absl::Status set = SetPlanes(*model->body, options->planes, options->plane_count, rows->get());
    if (!set.ok()) return set;
  }
  *sequence = new parkade_sequence{model->body, *std::move(rows)};
  return absl::OkStatus();
}

}  // namespace
}  // namespace parkade::capi

using parkade::capi::AtBorder;

extern "C" {

parkade_status parkade_model_open(parkade_cache* cache, const parkade_model_options* options,
                                  parkade_model** model) {
  return AtBorder([&] { return parkade::capi::OpenModel(cache, options, model); });
}

void parkade_model_close(parkade_model* model) { delete model; }

parkade_status parkade_sequence_open(parkade_model* model, const parkade_sequence_options* options,
                                     parkade_sequence** sequence) {
  return AtBorder([&] { return parkade::capi::OpenSequence(model, options, sequence); });
}

parkade_status parkade_sequence_set_planes(parkade_sequence* sequence,
                                           const parkade_plane_rows* planes, size_t plane_count) {
  return AtBorder([&] {
    if (sequence == nullptr) return parkade::capi::NullArgument("sequence");
    return parkade::capi::SetPlanes(*sequence->model, planes, plane_count, sequence->rows.get());
  });
}

void parkade_sequence_close(parkade_sequence* sequence) {
  if (sequence == nullptr) return;
  (void)AtBorder([&] {
    sequence->rows->Close();
    return absl::OkStatus();
  });
  delete sequence;
}

}  // extern "C"
