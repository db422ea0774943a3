// Makes the checksums of changed bytes right, so that decoding goes on behind them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace parkade::fuzz {

// The last 8 bytes of [at, at + size) become the checksum of those before; nothing where there is
// no room for one.
void RightFrame(std::string* bytes, std::size_t at, std::size_t size);

// Of a segment's head at `at`: its row values, the rows frame, the header. Returns the head's size,
// 0 where there is none whose rows are all there.
std::size_t RightSegmentHead(std::string* bytes, std::size_t at);

// Of a whole plain container: everything above, extents in image rows and in their headers, and
// the trailer with the file's size.
void RightContainer(std::string* bytes);

}  // namespace parkade::fuzz
