// Files that are written: what stands under a name before, meanwhile and after.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "client/cli/files/matrix.h"
#include "client/cli/files/new_file.h"
#include "client/cli/files/safetensors.h"

namespace gemmd::files {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A folder of its own for each test.
class MatrixWriteTest : public testing::Test {
 protected:
  MatrixWriteTest() {
    std::string name = ::testing::TempDir() + "/gemmd_write.XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~MatrixWriteTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Save(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  // Writes 1, 2, .. as `shape` of `dtype`, by bytes.
  absl::Status Write(const std::string& name, DType dtype, std::vector<int64_t> shape,
                     Existing existing) const {
    absl::StatusOr<MatrixWriter> writer =
        MatrixWriter::Create(Path(name), dtype, std::move(shape), existing);
    if (!writer.ok()) return writer.status();
    auto* bytes = reinterpret_cast<unsigned char*>(writer->data().data());
    std::iota(bytes, bytes + writer->data().size(), static_cast<unsigned char>(1));
    return writer->Commit();
  }

  // A checkpoint of three tensors, in the order of the format's own library.
  void SaveCheckpoint() const {
    const std::string json = R"({"__metadata__":{"format":"pt","step":"7"},)"
                             R"("b":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                             R"("a\u00e9":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                             R"("c":{"dtype":"F8_E5M2","shape":[1,3],"data_offsets":[22,25]}})";
    Save("m.safetensors", std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') +
                              json + "iiiiiiiiIIIIIIIIhhHHhhxyz");
  }
  // A tensor's bytes, by its name.
  std::string Tensor(const std::string& name) const {
    const std::string file = Read("m.safetensors");
    absl::StatusOr<SafetensorsView> view =
        ParseSafetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()});
    if (!view.ok()) return std::string(view.status().message());
    absl::StatusOr<const SafetensorsEntry*> entry = view->Find(name);
    if (!entry.ok()) return std::string(entry.status().message());
    return {reinterpret_cast<const char*>((*entry)->data.data()), (*entry)->data.size()};
  }
  nlohmann::ordered_json Header() const {
    const std::string file = Read("m.safetensors");
    const size_t length = static_cast<uint8_t>(file[0]) + 256 * static_cast<uint8_t>(file[1]);
    return nlohmann::ordered_json::parse(file.substr(8, length));
  }

  std::string folder_;
};

TEST_F(MatrixWriteTest, RoundTripsThroughBothFormats) {
  for (const char* name : {"rt.npy", "rt.safetensors", "rt2.safetensors:w"}) {
    absl::StatusOr<MatrixWriter> writer = MatrixWriter::Create(Path(name), DType::kF32, {2, 3});
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<float> values(6);
    std::iota(values.begin(), values.end(), 1.0f);
    std::memcpy(writer->data().data(), values.data(), 24);
    ASSERT_TRUE(writer->Commit().ok());
    absl::StatusOr<Matrix> matrix = LoadMatrix(Path(name));
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_THAT(matrix->shape(), ElementsAre(2, 3));
    std::vector<double> read(6);
    ToDouble(matrix->dtype(), matrix->bytes().data(), 0, read);
    EXPECT_THAT(read, ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST_F(MatrixWriteTest, AFileThatExistsIsRefusedInWordsThatTellWhatItHolds) {
  SaveCheckpoint();
  const std::string checkpoint = Read("m.safetensors");
  absl::Status refused = Write("m.safetensors:y", DType::kF32, {2}, Existing::kKeep);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("m.safetensors' exists and holds 3 tensors (b, a"),
                                       HasSubstr("--force puts 'y' into it")));
  ASSERT_TRUE(Write("d.npy", DType::kI8, {4}, Existing::kKeep).ok());
  refused = Write("d.npy", DType::kI8, {5}, Existing::kKeep);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("holds a matrix [4]"), HasSubstr("--force")));
  EXPECT_EQ(Read("m.safetensors"), checkpoint);
  EXPECT_THAT(Names(), UnorderedElementsAre("m.safetensors", "d.npy"));
}

TEST_F(MatrixWriteTest, AFileThatComesMeanwhileIsNotReplaced) {
  absl::StatusOr<MatrixWriter> writer = MatrixWriter::Create(Path("d.npy"), DType::kI8, {4});
  ASSERT_TRUE(writer.ok()) << writer.status();
  Save("d.npy", "another's");
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("d.npy"), "another's");
}

TEST_F(MatrixWriteTest, ATensorIsAddedAndTheOthersKeepTheirBytes) {
  SaveCheckpoint();
  ASSERT_TRUE(Write("m.safetensors:y", DType::kF16, {1, 2}, Existing::kReplace).ok());
  EXPECT_EQ(Tensor("b"), "iiiiiiiiIIIIIIII");
  EXPECT_EQ(Tensor("a\u00e9"), "hhHHhh");
  EXPECT_EQ(Tensor("c"), "xyz");
  EXPECT_EQ(Tensor("y"), "\x01\x02\x03\x04");
  const nlohmann::ordered_json header = Header();
  EXPECT_EQ(header["__metadata__"], (nlohmann::ordered_json{{"format", "pt"}, {"step", "7"}}));
  EXPECT_EQ(header["c"]["dtype"], "F8_E5M2");
  EXPECT_EQ(header["c"]["shape"], (std::vector<int64_t>{1, 3}));
  // Behind the last tensor of elements as wide, so that all stay aligned.
  EXPECT_EQ(header["y"]["data_offsets"], (std::vector<int64_t>{22, 26}));
  EXPECT_THAT(Names(), ElementsAre("m.safetensors"));
}

TEST_F(MatrixWriteTest, ATensorIsReplacedByOneOfAnotherTypeAndSize) {
  SaveCheckpoint();
  ASSERT_TRUE(Write("m.safetensors:b", DType::kF32, {1}, Existing::kReplace).ok());
  EXPECT_EQ(Tensor("b"), "\x01\x02\x03\x04");
  EXPECT_EQ(Tensor("a\u00e9"), "hhHHhh");
  EXPECT_EQ(Tensor("c"), "xyz");
  EXPECT_EQ(Header().size(), 4u);
  EXPECT_EQ(Header()["b"]["dtype"], "F32");
}

TEST_F(MatrixWriteTest, WhatIsNoSafetensorsFileIsNeitherEditedNorReplaced) {
  Save("m.safetensors", "a diary");
  const absl::Status refused = Write("m.safetensors:y", DType::kI8, {1}, Existing::kReplace);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("delete it, or name another file"));
  EXPECT_EQ(Read("m.safetensors"), "a diary");
}

TEST_F(MatrixWriteTest, ACheckpointThatChangesMeanwhileIsNotWrittenOver) {
  SaveCheckpoint();
  absl::StatusOr<MatrixWriter> writer =
      MatrixWriter::Create(Path("m.safetensors:y"), DType::kI8, {1}, Existing::kReplace);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(Write("m.safetensors:z", DType::kI8, {1}, Existing::kReplace).ok());
  const std::string theirs = Read("m.safetensors");
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Read("m.safetensors"), theirs);
}

TEST_F(MatrixWriteTest, TheFormatsOwnNameIsNoTensors) {
  const absl::Status refused =
      Write("m.safetensors:__metadata__", DType::kI8, {1}, Existing::kKeep);
  EXPECT_THAT(refused.message(), HasSubstr("__metadata__"));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(MatrixWriteTest, AReplacedFileKeepsItsPermissionsAndLinksLeadToIt) {
  Save("real.npy", "old");
  ASSERT_EQ(chmod(Path("real.npy").c_str(), 0640), 0);
  ASSERT_EQ(symlink("real.npy", Path("link.npy").c_str()), 0);
  ASSERT_EQ(symlink("absent.npy", Path("dangling.npy").c_str()), 0);
  ASSERT_TRUE(Write("link.npy", DType::kI8, {4}, Existing::kReplace).ok());
  ASSERT_TRUE(Write("dangling.npy", DType::kI8, {4}, Existing::kKeep).ok());
  struct stat info;
  ASSERT_EQ(lstat(Path("real.npy").c_str(), &info), 0);
  EXPECT_TRUE(S_ISREG(info.st_mode));
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  ASSERT_EQ(lstat(Path("link.npy").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  EXPECT_EQ(Read("real.npy"), Read("absent.npy"));
  EXPECT_THAT(Names(), UnorderedElementsAre("real.npy", "link.npy", "dangling.npy", "absent.npy"));
}

TEST_F(MatrixWriteTest, WhatIsNoRegularFileIsRefused) {
  ASSERT_EQ(mkfifo(Path("pipe.npy").c_str(), 0600), 0);
  const absl::Status refused = Write("pipe.npy", DType::kI8, {4}, Existing::kReplace);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("not a regular file"));
}

TEST_F(MatrixWriteTest, ADroppedWriterLeavesTheOldFileAloneAndNothingElse) {
  Save("old.npy", "old");
  {
    absl::StatusOr<MatrixWriter> writer =
        MatrixWriter::Create(Path("old.npy"), DType::kI8, {4}, Existing::kReplace);
    ASSERT_TRUE(writer.ok()) << writer.status();
  }
  EXPECT_EQ(Read("old.npy"), "old");
  EXPECT_THAT(Names(), ElementsAre("old.npy"));
}

TEST_F(MatrixWriteTest, ReportsAFolderThatIsNotThere) {
  const absl::Status status =
      MatrixWriter::Create("/no/such/folder/d.npy", DType::kI8, {4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/folder/d.npy"));
}

}  // namespace
}  // namespace gemmd::files
