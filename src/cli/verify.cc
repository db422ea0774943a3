#include "src/cli/verify.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "src/cli/progress.h"
#include "src/cli/tables.h"
#include "tiers/disk/disk_tier.h"

namespace parkade {
namespace {

using Json = nlohmann::ordered_json;

std::string JsonText(const VerifyReport& report, bool repair) {
  const Json json = {{"segments", report.segments},
                     {"extents", report.extents},
                     {"bytes", report.bytes},
                     {"damaged_segments", report.damaged_segments},
                     {"damaged_rows", report.damaged_rows},
                     {"orphan_files", report.orphan_files},
                     {"catalogue_rebuilt", report.catalogue_rebuilt},
                     {"repair", repair},
                     {"findings", report.findings}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string TableText(const VerifyReport& report) {
  const auto count = [](std::uint64_t value) { return FormatCount(static_cast<double>(value)); };
  Table table({"CHECKED", ">COUNT", ">DAMAGED"});
  table.AddRow({"segments", count(report.segments), count(report.damaged_segments)});
  table.AddRow({"extents", count(report.extents), ""});
  table.AddRow({"bytes", FormatBytes(static_cast<double>(report.bytes)), ""});
  table.AddRow({"catalogue rows", "", count(report.damaged_rows)});
  table.AddRow({"files that no row names", count(report.orphan_files), ""});
  std::string out = table.Text();
  if (report.catalogue_rebuilt) out.append("\nThe catalogue was rebuilt from the segments.\n");
  if (!report.findings.empty()) out.push_back('\n');
  for (const std::string& finding : report.findings) out.append(finding).push_back('\n');
  return out;
}

bool FoundAnything(const VerifyReport& report) {
  return report.damaged_segments > 0 || report.damaged_rows > 0 || report.orphan_files > 0 ||
         report.catalogue_rebuilt || !report.findings.empty();
}

}  // namespace

CliOutcome RunVerify(const CliArguments& arguments) {
  absl::StatusOr<VerifyReport> report;
  {
    ProgressBar bar;
    report = VerifyDiskTier(
        arguments.disk, arguments.repair,
        [&bar](std::uint64_t done_bytes, std::uint64_t all_bytes) {
          bar.Show(done_bytes, all_bytes);
        },
        arguments.key);
  }
  if (!report.ok()) return {1, "", std::string(report.status().message())};
  return {FoundAnything(*report) ? 1 : 0,
          arguments.json ? JsonText(*report, arguments.repair) : TableText(*report), ""};
}

}  // namespace parkade
