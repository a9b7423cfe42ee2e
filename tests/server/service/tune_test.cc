// Tuning through a listener, of a CPU backend with made-up kernels.

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gemmd/v1/admin_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/observe/exposition.h"
#include "server/engine/tuning/device_tuner.h"
#include "server/engine/tuning/tuning_file.h"
#include "server/service/listen/listener.h"
#include "tests/kernels/tunable_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using kernels::FakeTuner;
using kernels::TunableBackend;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr std::string_view kGood = "fake tuning of model A\n8 64 256 fake_split 1e-06";

class TuneTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { EnableListenerPlugins(); }
  TuneTest()
      : folder_(std::filesystem::path(testing::TempDir()) / absl::StrCat("tune-", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TuneTest() override {
    listener_.reset();
    state_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string file() const { return folder_ / "cpu.json"; }
  void Write(std::string_view text) const { std::ofstream(file()) << text; }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // A daemon with one device that can be tuned.
  void Serve(Role role = Role::kAdmin) {
    Config config;
    config.tenants = {{.name = "red"}};
    config.devices = {{.name = "cpu:0", .tuning_file = file()}};
    config.share.disabled = true;
    auto backend = std::make_unique<TunableBackend>();
    backend_ = backend.get();
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::move(backend));
    state_ = *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "instance");
    static int count = 0;
    const std::string address = absl::StrCat("unix-abstract:gemmd-tune-", getpid(), "-", count++);
    // Whoever runs the test owns the socket's other end, which would make it an admin.
    auto listener = Listener::Start({.address = address, .tenant = "red", .role = role},
                                    {*state_, live_, streams_, connections_, quota_});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    stub_ =
        v1::AdminService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  }

  static v1::TuneRequest Shapes(std::vector<std::array<int64_t, 3>> shapes) {
    v1::TuneRequest request;
    for (const auto& [m, n, k] : shapes) {
      v1::TuneShape* shape = request.add_shapes();
      shape->set_m(m);
      shape->set_n(n);
      shape->set_k(k);
    }
    return request;
  }
  struct Tuned {
    grpc::Status status;
    std::vector<v1::TuneProgress> messages;
  };
  Tuned Tune(const v1::TuneRequest& request) {
    grpc::ClientContext context;
    auto stream = stub_->Tune(&context, request);
    Tuned tuned;
    v1::TuneProgress message;
    while (stream->Read(&message)) tuned.messages.push_back(message);
    tuned.status = stream->Finish();
    return tuned;
  }
  std::string Refusal(const v1::TuneRequest& request) {
    const Tuned tuned = Tune(request);
    EXPECT_THAT(tuned.messages, IsEmpty());
    return absl::StrCat(tuned.status.error_code(), ": ", tuned.status.error_message());
  }
  kernels::KernelChoice Choice(kernels::TuneShape shape = {8, 64, 256}) {
    return *backend_->tuner()->Current(shape);
  }
  DeviceTuner& tuner() { return **state_->FindTuner(""); }

  const std::filesystem::path folder_;
  FakeClock clock_;
  Log log_{LogConfig{.level = LogLevel::kError}};
  Metrics metrics_{"test"};
  LiveCalls live_;
  StreamRegistry streams_;
  guard::Connections connections_{
      {.max = 64, .max_per_peer = 64, .max_streams = 64, .max_unfinished_bytes = 64 << 20},
      [](auto, auto) {}};
  grpc::ResourceQuota quota_;
  TunableBackend* backend_ = nullptr;
  std::unique_ptr<ServerState> state_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<v1::AdminService::Stub> stub_;
};

TEST_F(TuneTest, MeasuresWhatItIsAskedForAndChoosesByIt) {
  Serve();
  const Tuned tuned = Tune(Shapes({{8, 64, 256}, {16, 64, 256}}));
  ASSERT_TRUE(tuned.status.ok()) << tuned.status.error_message();
  ASSERT_THAT(tuned.messages, SizeIs(3));
  EXPECT_EQ(tuned.messages[0].shapes(), 2);
  EXPECT_FALSE(tuned.messages[0].has_tuned());
  EXPECT_EQ(tuned.messages[2].done(), 2);
  EXPECT_EQ(tuned.messages[2].device(), "cpu:0");
  const v1::TunedShape& first = tuned.messages[1].tuned();
  EXPECT_EQ(first.skipped(), "");
  EXPECT_EQ(first.shape().m(), 8);
  EXPECT_EQ(first.kernel_before(), "fake_model");
  EXPECT_EQ(first.reason_before(), v1::CHOICE_REASON_MODEL);
  EXPECT_GT(first.seconds_before(), 0);
  EXPECT_GT(first.seconds(), 0);
  EXPECT_LE(first.seconds(), first.seconds_before());
  EXPECT_EQ(first.kernels(), 3);
  EXPECT_EQ(Choice().reason, kernels::ChoiceReason::kTuned);
  EXPECT_EQ(Choice().kernel, first.kernel());
}

TEST_F(TuneTest, OneWeightStandsForTheUsualNumbersOfRows) {
  Serve();
  auto request = Shapes({{0, 16, 16}});
  request.set_kernels(2);
  const Tuned tuned = Tune(request);
  ASSERT_TRUE(tuned.status.ok()) << tuned.status.error_message();
  EXPECT_EQ(tuned.messages[0].shapes(), static_cast<int>(kernels::UsualRowBuckets().size()));
}

TEST_F(TuneTest, WhatWasMeasuredSurvivesARestart) {
  Serve();
  ASSERT_TRUE(Tune(Shapes({{8, 64, 256}})).status.ok());
  const std::string chosen(Choice().kernel);
  listener_.reset();
  state_.reset();
  Serve();
  EXPECT_EQ(Choice().reason, kernels::ChoiceReason::kTuned);
  EXPECT_EQ(Choice().kernel, chosen);
  EXPECT_EQ(tuner().counts().loaded, 1);
  EXPECT_THAT(metrics_.exposition()->Text(), HasSubstr("gemmd_tuning_shapes{device=\"cpu:0\"} 1"));
}

TEST_F(TuneTest, PassesOverAShapeThatNothingCanBeChosenForAndGoesOn) {
  Serve();
  const Tuned tuned = Tune(Shapes({{8, 63, 256}, {8, 64, 256}}));
  ASSERT_TRUE(tuned.status.ok()) << tuned.status.error_message();
  ASSERT_THAT(tuned.messages, SizeIs(3));
  EXPECT_THAT(tuned.messages[1].tuned().skipped(), HasSubstr("multiple of 16"));
  EXPECT_EQ(tuned.messages[2].tuned().skipped(), "");
  EXPECT_EQ(tuner().counts().passed_over, 1);
}

TEST_F(TuneTest, RefusesWhatItCannotMeasureAndNamesTheRemedy) {
  Serve();
  EXPECT_THAT(Refusal({}), HasSubstr("give shapes"));
  EXPECT_THAT(Refusal(Shapes({{8, 64, 256}, {-1, 64, 256}})),
              AllOf(StartsWith("3:"), HasSubstr("shapes[1].m=-1"), HasSubstr("16384")));
  EXPECT_THAT(Refusal(Shapes({{8, int64_t{1} << 62, 256}})), HasSubstr("shapes[0].n="));
  std::vector<std::array<int64_t, 3>> many;
  for (int64_t i = 0; i < 300; ++i) many.push_back({0, 16 * (i + 1), 16});
  EXPECT_THAT(Refusal(Shapes(many)), HasSubstr("more than 4096 shapes"));
  auto request = Shapes({{8, 64, 256}});
  request.set_kernels(1);
  EXPECT_THAT(Refusal(request), HasSubstr("kernels=1 is not from 2 to 32"));
  request.set_kernels(0);
  request.set_device("cpu:7");
  EXPECT_THAT(Refusal(request), AllOf(StartsWith("5:"), HasSubstr("cpu:7")));
  request.set_device("");
  request.set_most_served(-1);
  EXPECT_THAT(Refusal(request), HasSubstr("most_served=-1"));
}

TEST_F(TuneTest, WithoutMemoryAShapeIsPassedOver) {
  Serve();
  backend_->full = true;
  const Tuned tuned = Tune(Shapes({{8, 64, 256}}));
  EXPECT_TRUE(tuned.status.ok()) << tuned.status.error_message();
  EXPECT_THAT(tuned.messages.back().tuned().skipped(), HasSubstr("no memory"));
}

TEST_F(TuneTest, ASecondOneIsRefusedAndACancelledOneKeepsWhatItMeasured) {
  Serve();
  grpc::ClientContext context;
  auto stream = stub_->Tune(&context, Shapes({{0, 64, 256},
                                              {0, 64, 512},
                                              {0, 64, 1024},
                                              {0, 128, 2048},
                                              {0, 256, 4096},
                                              {0, 512, 4096}}));
  v1::TuneProgress message;
  ASSERT_TRUE(stream->Read(&message));
  EXPECT_THAT(Refusal(Shapes({{8, 64, 256}})),
              AllOf(StartsWith("8:"), HasSubstr("already"), HasSubstr("limit 1")));
  ASSERT_TRUE(stream->Read(&message));
  context.TryCancel();
  while (stream->Read(&message)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // The next one is taken once that has ended.
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!Tune(Shapes({{8, 16, 16}})).status.ok() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GE(backend_->tuner()->kept_shapes(), 2);
}

TEST_F(TuneTest, ADrainEndsItAndRefusesTheNext) {
  Serve();
  grpc::ClientContext context;
  auto stream = stub_->Tune(&context, Shapes({{0, 64, 256}, {0, 128, 2048}, {0, 512, 4096}}));
  v1::TuneProgress message;
  ASSERT_TRUE(stream->Read(&message));
  state_->Refuse();
  streams_.DrainAll();
  while (stream->Read(&message)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Refusal(Shapes({{8, 64, 256}})), StartsWith("14:"));
}

TEST_F(TuneTest, TwoMachinesTablesMerge) {
  Serve();
  ASSERT_TRUE(Tune(Shapes({{16, 64, 256}})).status.ok());
  v1::ImportTuningRequest request;
  request.set_table(std::string(kGood));
  v1::ImportTuningResponse imported;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->ImportTuning(&context, request, &imported).ok());
  }
  EXPECT_EQ(imported.shapes(), 1);
  EXPECT_EQ(Choice().kernel, "fake_split");
  v1::ExportTuningResponse exported;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->ExportTuning(&context, {}, &exported).ok());
  EXPECT_EQ(exported.shapes(), 2);
  EXPECT_THAT(exported.table(), AllOf(HasSubstr("8 64 256"), HasSubstr("16 64 256")));
  EXPECT_EQ(Read(file()), exported.table());
}

TEST_F(TuneTest, AnImportThatCannotBeUsedChangesNothing) {
  Serve();
  for (const auto& [table, code] : {std::pair("fake tuning of model B", 9),
                                    {"", 3},
                                    {"{}", 3},
                                    {"fake tuning of model A\n8 64", 3}}) {
    v1::ImportTuningRequest request;
    request.set_table(table);
    v1::ImportTuningResponse response;
    grpc::ClientContext context;
    EXPECT_EQ(stub_->ImportTuning(&context, request, &response).error_code(), code) << table;
  }
  EXPECT_EQ(backend_->tuner()->kept_shapes(), 0);
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(TuneTest, AFileThatCannotBeUsedIsCountedAndKeptBesideTheNewOne) {
  for (const char* bad : {"fake tuning of model B", "", "{", "fake tuning of model A\n8 64"}) {
    Write(bad);
    Serve();
    EXPECT_EQ(tuner().counts().rejected, 1) << bad;
    EXPECT_EQ(backend_->tuner()->kept_shapes(), 0) << bad;
    ASSERT_TRUE(Tune(Shapes({{8, 64, 256}})).status.ok());
    EXPECT_EQ(Read(file() + ".rejected"), bad);
    EXPECT_THAT(Read(file()), HasSubstr("8 64 256"));
    listener_.reset();
    state_.reset();
  }
}

TEST_F(TuneTest, KernelsThatThisBuildLacksAreLeftOutOfAFile) {
  Write(absl::StrCat(std::string(kGood), "\n8 64 256 of_another_build 1e-07"));
  Serve();
  EXPECT_EQ(tuner().counts().partial, 1);
  EXPECT_EQ(Choice().kernel, "fake_split");
}

TEST_F(TuneTest, WhereNothingCanBeWrittenTheTimesCountAllTheSame) {
  std::filesystem::create_directory(file());  // a folder stands where the file should
  Serve();
  EXPECT_EQ(tuner().counts().rejected, 1);
  ASSERT_TRUE(Tune(Shapes({{8, 64, 256}})).status.ok());
  EXPECT_EQ(Choice().reason, kernels::ChoiceReason::kTuned);
  listener_.reset();
  state_.reset();
  std::filesystem::remove_all(folder_);  // and now there is not even a folder
  Serve();
  ASSERT_TRUE(Tune(Shapes({{8, 64, 256}})).status.ok());
  EXPECT_EQ(tuner().counts().unwritten, 1);
  EXPECT_EQ(Choice().reason, kernels::ChoiceReason::kTuned);
}

TEST_F(TuneTest, ADeviceThatIsBusyAllTheTimeIsMeasuredAllTheSame) {
  Serve();
  std::atomic<bool> done = false;
  std::thread load([&] {
    const auto memory = *backend_->Allocate(1 << 20, kernels::MemoryKind::kDevice);
    const kernels::FillOp fill{.dst = {.slot = 0,
                                       .shape = kernels::MakeDims({1, 1 << 18}),
                                       .strides = kernels::MakeDims({1 << 18, 1})}};
    const auto program = *backend_->Compile({{fill}});
    while (!done.load()) {
      absl::Notification answered;
      auto job = std::make_shared<Job>();
      job->program = program;
      job->bindings.slots = {memory->address()};
      job->tenant = state_->tenants().Find("red");
      job->done = [&](JobResult) { answered.Notify(); };
      ASSERT_TRUE(state_->devices()[0]->lane().Submit(job).ok());
      answered.WaitForNotification();
    }
  });
  auto request = Shapes({{8, 64, 256}});
  request.set_kernels(2);
  EXPECT_TRUE(Tune(request).status.ok());
  done = true;
  load.join();
  EXPECT_EQ(Choice().reason, kernels::ChoiceReason::kTuned);
}

TEST_F(TuneTest, ADeviceWithoutAChoiceSaysSo) {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  backends.push_back(*kernels::CreateCpuBackend({.name = "cpu:0", .threads = 1}));
  Config config;
  config.tenants = {{.name = "red"}};
  config.share.disabled = true;
  const auto state =
      *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "instance");
  for (const char* name : {"", "cpu:0"}) {
    const absl::Status status = state->FindTuner(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("tune a GPU (cuda:0)"));
  }
}

TEST(ServedShapesTest, ListsWhatWasCalledMostFirst) {
  ServedShapes served;
  const kernels::TuneShape often{8, 64, 256}, seldom{16, 64, 256};
  served.Add({{{seldom, kernels::ChoiceReason::kTuned, 1}}});
  served.Add({{{often, kernels::ChoiceReason::kModel, 3}}});
  EXPECT_EQ(served.Most(1), std::vector<kernels::TuneShape>{often});
  EXPECT_EQ(served.totals().tuned, 1);
  EXPECT_EQ(served.totals().modelled, 3);
  for (int64_t n = 0; n < 2000; ++n) {
    served.Add({{{{1, n, 16}, kernels::ChoiceReason::kTable, 1}}});
  }
  EXPECT_THAT(served.Most(5000), SizeIs(ServedShapes::kMost));
  EXPECT_EQ(served.totals().shipped, 2000);
}

}  // namespace
}  // namespace gemmd::server
