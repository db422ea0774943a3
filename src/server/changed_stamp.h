// Recognises what clients put into every prompt anew: nothing after it can be reused.
#pragma once

#include <string_view>

namespace parkade {

enum class ChangedStamp { kNone, kDate, kTime, kUuid, kRandom, kCounter };

// Name of the record: "", "date", "time", "uuid", "random", "counter".
std::string_view ChangedStampName(ChangedStamp stamp);
// What a person reads, e.g. "a clock time that changes in every request"; empty for an unknown
// name.
std::string_view ChangedStampWords(std::string_view name);

// No more than this of every text is looked at.
inline constexpr std::size_t kStampWindowBytes = 200;

// `before` stands in both texts; `stored` and `wanted` are how they go on, and may begin alike,
// because tokens are not letters. Names a stamp only if both sides show one of the same kind where
// they differ. Cost: a few passes over the windows.
ChangedStamp ClassifyChange(std::string_view before, std::string_view stored,
                            std::string_view wanted);

}  // namespace parkade
