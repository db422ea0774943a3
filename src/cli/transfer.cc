#include "src/cli/transfer.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/cli/disk_access.h"
#include "src/cli/export.h"
#include "src/cli/import.h"
#include "src/cli/progress.h"
#include "src/cli/tables.h"

namespace parkade {
namespace {

using Json = nlohmann::ordered_json;

CliOutcome Failed(const absl::Status& status) { return {1, "", std::string(status.message())}; }

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Count(std::uint64_t count) { return FormatCount(static_cast<double>(count)); }

std::string Counted(std::uint64_t count, absl::string_view word) {
  return absl::StrCat(Count(count), " ", word, count == 1 ? "" : "s");
}

std::string Size(std::uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

// One row of a table, for its care about control characters.
std::string Line(const std::string& text) {
  Table table({text});
  return table.Text();
}

Json NullIfEmpty(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string ExportText(const CliArguments& arguments, const ExportReport& report) {
  if (arguments.json) {
    return Dump({{"id", ToHex(report.id)},
                 {"name", NullIfEmpty(report.name)},
                 {"tokens", report.tokens},
                 {"parks", report.parks},
                 {"stages", report.stages},
                 {"file", arguments.file},
                 {"file_bytes", report.file_bytes}});
  }
  return Line(absl::StrCat("exported ", ToHex(report.id), ": ", Counted(report.tokens, "token"),
                           " in ", Counted(report.stages, "stage"), ", ", Size(report.file_bytes),
                           " in ", arguments.file));
}

std::string ImportText(const CliArguments& arguments, const ImportReport& report) {
  if (arguments.json) {
    return Dump({{"id", ToHex(report.id)},
                 {"name", NullIfEmpty(report.name)},
                 {"tokens", report.tokens},
                 {"parks", report.parks},
                 {"bytes", report.payload_bytes},
                 {"there_already", report.there_already},
                 {"notices", report.notices}});
  }
  if (report.there_already) return Line(absl::StrCat(ToHex(report.id), " is there already"));
  std::string text =
      Line(absl::StrCat("imported ", ToHex(report.id), report.name.empty() ? "" : " as '",
                        report.name, report.name.empty() ? "" : "'", ": ",
                        Counted(report.tokens, "token"), ", ", Size(report.payload_bytes)));
  for (const std::string& notice : report.notices) text += Line(notice);
  return text;
}

}  // namespace

CliOutcome RunExport(const CliArguments& arguments) {
  const absl::StatusOr<std::unique_ptr<Tier>> tier =
      OpenExistingTier(arguments.disk, arguments.key);
  if (!tier.ok()) return Failed(tier.status());
  const StopOnSignal stop;
  absl::StatusOr<ExportReport> report;
  {
    ProgressBar bar;
    report = ExportConversation(
        **tier, {arguments.id_or_name, arguments.file, arguments.force, arguments.file_key},
        [&](std::uint64_t done, std::uint64_t all) {
          bar.Show(done, all);
          return stop.Check();
        });
  }
  if (!report.ok()) return Failed(report.status());
  return {0, ExportText(arguments, *report), ""};
}

CliOutcome RunImport(const CliArguments& arguments) {
  absl::StatusOr<ContainerFile> file = ContainerFile::Open(arguments.file, arguments.file_key);
  if (!file.ok()) return Failed(file.status());
  const auto open = [&arguments] {
    return OpenTierForImport(arguments.disk, arguments.disk_gib.value_or(0),
                             arguments.disk_min_free_mib, arguments.key);
  };
  // A directory that a server holds is told at once; a new one is not made for a bad file.
  absl::StatusOr<std::unique_ptr<Tier>> tier = nullptr;
  if (HoldsTier(arguments.disk)) tier = open();
  if (!tier.ok()) return Failed(tier.status());
  const StopOnSignal stop;
  absl::StatusOr<ImportReport> report;
  {
    ProgressBar bar;
    std::uint64_t before = 0;
    const WorkWatch watch = [&](std::uint64_t done, std::uint64_t all) {
      bar.Show(before + done, 2 * all);
      return stop.Check();
    };
    const absl::StatusOr<CheckedContainer> checked = CheckContainer(*file, watch);
    if (!checked.ok()) return Failed(checked.status());
    before = file->trailer().file_bytes;
    if (*tier == nullptr) tier = open();
    if (!tier.ok()) return Failed(tier.status());
    const std::int64_t now_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                         std::chrono::system_clock::now().time_since_epoch())
                                         .count();
    report = ImportConversation(**tier, *file, *checked, now_unix_ms, watch, arguments.key);
  }
  if (!report.ok()) return Failed(report.status());
  return {0, ImportText(arguments, *report), ""};
}

}  // namespace parkade
