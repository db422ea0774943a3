#include "src/cli/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace parkade {
namespace {

// Columns of the character that begins with this byte; 0 within one. Most of what begins with E3 to
// ED or F0 is two wide (CJK, Hangul, emoji); what is not gets a column too much.
std::size_t ColumnsOf(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if ((byte & 0xc0) == 0x80) return 0;
  return (byte >= 0xe3 && byte <= 0xed) || byte == 0xf0 ? 2 : 1;
}

std::size_t Width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += ColumnsOf(c);
  return width;
}

// As much of the text as fits into so many columns.
std::string Cut(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t used = 0; end < text.size(); ++end) {
    used += ColumnsOf(text[end]);
    if (used > columns) break;
  }
  return std::string(text.substr(0, end));
}

// What a terminal would obey: control characters, also those of two bytes, and marks that change
// the direction of what follows. Their bytes become '?'.
bool IsControl(std::string_view text, std::size_t at, std::size_t* bytes) {
  auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  *bytes = 1;
  if (byte(0) < 0x20 || byte(0) == 0x7f) return true;
  *bytes = 2;
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0) return true;
  *bytes = 3;
  if (byte(0) != 0xe2) return false;
  const unsigned last = byte(2);
  return (byte(1) == 0x80 && (last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae))) ||
         (byte(1) == 0x81 && last >= 0xa6 && last <= 0xa9);
}

std::string Printf(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

}  // namespace

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_aligned_.push_back(heading.rfind('>', 0) == 0);
    if (right_aligned_.back()) heading.erase(0, 1);
  }
  AddRow(std::move(headings));
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(right_aligned_.size());
  for (std::string& cell : cells) cell = PrintableText(cell);
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::Widths() const {
  std::vector<std::size_t> widths(right_aligned_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  return widths;
}

std::string Table::Text(std::size_t columns, const std::vector<Squeeze>& order) const {
  if (columns == 0) return Text();
  Table table = *this;
  const auto fits = [&table, columns] {
    std::size_t width = 0;
    for (const std::size_t each : table.Widths()) width += each + (width > 0 ? 2 : 0);
    return width <= columns;
  };
  for (const Squeeze& squeeze : order) {
    if (fits()) break;
    const auto& headings = table.rows_.front();
    const auto found = std::find(headings.begin(), headings.end(), squeeze.heading);
    if (found == headings.end()) continue;
    const auto at = found - headings.begin();
    if (squeeze.columns == 0) table.right_aligned_.erase(table.right_aligned_.begin() + at);
    for (auto& row : table.rows_) {
      if (squeeze.columns == 0) {
        row.erase(row.begin() + at);
      } else {
        row[static_cast<std::size_t>(at)] = Cut(row[static_cast<std::size_t>(at)], squeeze.columns);
      }
    }
  }
  std::string out;
  std::string text = table.Text();
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    out.append(Cut(line, columns)).push_back('\n');
  }
  return out;
}

std::string Table::Text() const {
  const std::vector<std::size_t> widths = Widths();
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      if (i > 0) line.append("  ");
      line.append(right_aligned_[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out.append(line).push_back('\n');
  }
  return out;
}

std::string PrintableText(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t bytes = 1;
    const bool control = IsControl(text, at, &bytes);
    out += control ? '?' : text[at];
    at += control ? bytes : 1;
  }
  return out;
}

std::size_t DigitsThatTell(std::vector<std::string> ids, std::size_t least) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::size_t digits = least;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const std::size_t length = std::min(ids[i - 1].size(), ids[i].size());
    std::size_t same = 0;
    while (same < length && ids[i - 1][same] == ids[i][same]) ++same;
    digits = std::max(digits, same + 1);
  }
  return digits;
}

std::string FormatBytes(double bytes) {
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return Printf("%.0f B", bytes);
  int unit = -1;
  while (bytes >= 1023.95 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return Printf("%.1f ", bytes) + units[std::max(unit, 0)];
}

std::string FormatSeconds(double seconds) {
  if (seconds < 1) return Printf("%.1f ms", seconds * 1e3);
  if (seconds < 60) return Printf("%.1f s", seconds);
  const double whole = std::floor(seconds);
  return Printf("%.0f min", std::floor(whole / 60)) + Printf(" %.0f s", std::fmod(whole, 60));
}

std::string FormatAge(double seconds) {
  if (seconds < 1) return "now";
  if (seconds < 60) return Printf("%.0f s ago", std::floor(seconds));
  if (seconds < 3600) return Printf("%.0f min ago", std::floor(seconds / 60));
  if (seconds < 48 * 3600) return Printf("%.0f h ago", std::floor(seconds / 3600));
  return Printf("%.0f d ago", std::floor(seconds / 86400));
}

std::string FormatCount(double count) {
  std::string digits = Printf("%.0f", count);
  for (std::size_t i = digits.size(); i > 3 + (digits[0] == '-' ? 1 : 0);) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

}  // namespace parkade
