// Checkpoints as tools for models write them: .safetensors files and the index of a sharded one.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/e2e/process.h"

namespace gemmd::e2e {

struct FileTensor {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<int64_t> shape;
  std::string data;
};

inline std::string RandomFloats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::string data;
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(random);
    data.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return data;
}

// E4M3 bits of finite numbers.
inline std::string RandomE4m3(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string data(count, '\0');
  for (char& c : data) c = static_cast<char>(random() % 0x78);
  return data;
}

inline std::string SafetensorsText(const std::vector<FileTensor>& tensors) {
  nlohmann::json header;
  std::string data;
  for (const FileTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  const std::string json = header.dump();
  std::string text;
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(uint64_t{json.size()} >> (8 * i)));
  return text + json + data;
}

// Files "0.safetensors", "1.safetensors", .. and their index, below `folder`.
inline void WriteSharded(const std::string& folder,
                         const std::vector<std::vector<FileTensor>>& shards) {
  nlohmann::json map;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = std::to_string(i) + ".safetensors";
    WriteFile(folder + "/" + name, SafetensorsText(shards[i]));
    for (const FileTensor& tensor : shards[i]) map[tensor.name] = name;
  }
  WriteFile(folder + "/model.safetensors.index.json",
            nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
}

}  // namespace gemmd::e2e
