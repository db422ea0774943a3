// Tables for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parkade {

// Columns as wide as their widest cell, two spaces between them. Control characters become '?': a
// name must not drive the terminal.
class Table {
 public:
  // A heading that begins with '>' makes its column right-aligned; the '>' is not shown.
  explicit Table(std::vector<std::string> headings);

  // What may be done to a column so that the table becomes narrower.
  struct Squeeze {
    std::string heading;
    std::size_t columns = 0;  // its cells are cut to so many; 0: it is left out
  };

  // As many cells as there are headings.
  void AddRow(std::vector<std::string> cells);
  // Heading line and rows, each ending in a line end, no blanks at the ends of lines.
  std::string Text() const;
  // The same in at most `columns` (0: no limit): `order` is gone through until it fits; where it
  // never does, the lines are cut.
  std::string Text(std::size_t columns, const std::vector<Squeeze>& order) const;

 private:
  std::vector<std::size_t> Widths() const;

  std::vector<bool> right_aligned_;
  std::vector<std::vector<std::string>> rows_;  // the first one is the headings
};

// The text with '?' for every control character, as in a table.
std::string PrintableText(std::string_view text);

// Digits that tell the ids apart, `least` or more.
std::size_t DigitsThatTell(std::vector<std::string> ids, std::size_t least);

// "512 B", "20.2 MiB", "1.0 TiB".
std::string FormatBytes(double bytes);
// "0.4 ms", "12.1 s", "3 min 20 s".
std::string FormatSeconds(double seconds);
// "now", "5 s ago", "3 min ago", "7 h ago", "12 d ago"; a time to come is "now".
std::string FormatAge(double seconds);
// "1,234,567"
std::string FormatCount(double count);

}  // namespace parkade
