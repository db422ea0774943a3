// What a server, or a directory, says about its cache, as tables for people.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "nlohmann/json.hpp"

namespace parkade {

// Keeps fields in the order in which they came.
using CliJson = nlohmann::ordered_json;

// Where and when it is read.
struct CliView {
  double now_unix_seconds = 0;  // ages are counted from here
  std::size_t columns = 0;      // no line is longer; 0: no limit
};

// All functions throw nlohmann::json::exception when the answer has another shape.

// `json` is the answer of GET /conversations; its conversations stand in the order of the table.
std::string ConversationsTable(const CliJson& json, const CliView& view);
// The tiers in such an answer.
std::string TiersTable(const CliJson& json, const CliView& view);
// Of GET /conversations/{id}.
std::string ConversationText(const CliJson& json, const CliView& view);
// Of GET /conversations/lookups.
std::string LookupsTable(const CliJson& json, const CliView& view);
// What the cache saved, from the server's counters (see ParseMetrics).
std::string SavingsText(const std::map<std::string, double>& samples, const CliView& view);

// A field that is a string or null, which is "-".
std::string TextField(const CliJson& json, const char* key);
double NumberField(const CliJson& json, const char* key);

}  // namespace parkade
