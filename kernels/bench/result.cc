#include "kernels/bench/result.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/bench/rows_summary.h"
#include "kernels/bench/summary.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr Outcome kOutcomes[] = {Outcome::kOk, Outcome::kWrong, Outcome::kRefused, Outcome::kFailed,
                                 Outcome::kSkipped};

// A time that was not measured is null: 0 would look like a time.
Json Measured(double value) { return value > 0 ? Json(value) : Json(nullptr); }
double Number(const Json& record, const char* key) {
  const auto at = record.find(key);
  return at == record.end() || at->is_null() ? 0 : at->get<double>();
}

Outcome OutcomeOf(const Json& record) {
  const std::string name = record.value("outcome", "ok");
  for (Outcome outcome : kOutcomes) {
    if (Name(outcome) == name) return outcome;
  }
  return Outcome::kSkipped;
}

Json ToRecord(const ShapeResult& s) {
  Json r;
  r["m"] = s.shape.m;
  r["n"] = s.shape.n;
  r["k"] = s.shape.k;
  if (s.batch > 1) r["batch"] = s.batch;
  if (s.layout != "nt") r["layout"] = s.layout;
  r["outcome"] = Name(s.outcome);
  if (!s.message.empty()) r["message"] = s.message;
  r["kernel"] = s.kernel;
  r["reason"] = s.reason;
  r["us"] = Measured(s.us);
  r["us_p10"] = Measured(s.us_p10);
  r["us_p90"] = Measured(s.us_p90);
  if (s.us_by_place.size() > 1) r["us_by_place"] = s.us_by_place;
  r["tflops"] = Measured(s.tflops());
  r["gb_s"] = Measured(s.gb_per_s());
  r["floor_us"] = Measured(s.floor_us);
  r["cublaslt_block_us"] = Measured(s.cublaslt_block_us);
  r["cublaslt_tensorwise_us"] = Measured(s.cublaslt_tensorwise_us);
  r["cublaslt_bf16_us"] = Measured(s.cublaslt_bf16_us);
  if (!s.cublaslt_block_refusal.empty()) r["cublaslt_block_refusal"] = s.cublaslt_block_refusal;
  // NaN has no JSON: it is written as null, and the outcome says that the result was wrong.
  r["calc_diff"] = s.calc_diff;
  r["rel_error"] = s.rel_error;
  if (s.cublaslt_block_us > 0) r["cublaslt_block_calc_diff"] = s.cublaslt_block_calc_diff;
  r["checked_rows"] = s.checked_rows;
  if (s.bitwise_runs > 0) r["bitwise_runs"] = s.bitwise_runs;
  if (s.variants_timed > 0) {
    r["variants_timed"] = s.variants_timed;
    Json best = Json::array();
    for (const VariantTime& v : s.best) best.push_back({{"kernel", v.kernel}, {"us", v.us}});
    r["best"] = std::move(best);
    r["model_kernel"] = s.model_kernel;
    r["model_us"] = Measured(s.model_us);
  }
  if (!s.pool.empty()) {
    Json pool;
    for (const VariantTime& v : s.pool) pool[v.kernel] = v.us;
    r["pool"] = std::move(pool);
  }
  return r;
}

ShapeResult FromRecord(const Json& r) {
  ShapeResult s;
  s.shape = {r.at("m").get<int64_t>(), r.at("n").get<int64_t>(), r.at("k").get<int64_t>()};
  s.batch = r.value("batch", int64_t{1});
  s.layout = r.value("layout", "nt");
  s.outcome = OutcomeOf(r);
  s.message = r.value("message", "");
  s.kernel = r.at("kernel").get<std::string>();
  s.reason = r.value("reason", "");
  s.us = Number(r, "us");
  s.us_p10 = Number(r, "us_p10");
  s.us_p90 = Number(r, "us_p90");
  s.us_by_place = r.value("us_by_place", std::vector<double>());
  s.floor_us = Number(r, "floor_us");
  s.cublaslt_block_us = Number(r, "cublaslt_block_us");
  s.cublaslt_tensorwise_us = Number(r, "cublaslt_tensorwise_us");
  s.cublaslt_bf16_us = Number(r, "cublaslt_bf16_us");
  s.cublaslt_block_refusal = r.value("cublaslt_block_refusal", "");
  s.calc_diff = Number(r, "calc_diff");
  s.rel_error = Number(r, "rel_error");
  s.cublaslt_block_calc_diff = Number(r, "cublaslt_block_calc_diff");
  s.checked_rows = r.value("checked_rows", int64_t{0});
  s.bitwise_runs = r.value("bitwise_runs", 0);
  s.variants_timed = r.value("variants_timed", 0);
  for (const Json& v : r.value("best", Json::array())) {
    s.best.push_back({v.at("kernel").get<std::string>(), v.at("us").get<double>()});
  }
  s.model_kernel = r.value("model_kernel", "");
  s.model_us = Number(r, "model_us");
  const Json pool = r.value("pool", Json::object());
  for (const auto& [kernel, us] : pool.items()) s.pool.push_back({kernel, us.get<double>()});
  return s;
}

Json ToRecord(const QuantizeResult& q, double copy_gb_s) {
  Json r;
  r["rows"] = q.rows;
  r["k"] = q.k;
  r["block"] = q.block;
  r["right"] = q.right;
  r["rel_error"] = q.rel_error;
  r["us"] = Measured(q.us);
  r["us_p10"] = Measured(q.us_p10);
  r["us_p90"] = Measured(q.us_p90);
  r["floor_us"] = Measured(q.floor_us);
  r["gb_s"] = Measured(q.gb_per_s());
  r["share_of_copy"] = Measured(copy_gb_s > 0 ? q.gb_per_s() / copy_gb_s : 0);
  return r;
}

QuantizeResult FromQuantizeRecord(const Json& r) {
  QuantizeResult q;
  q.rows = r.at("rows").get<int64_t>();
  q.k = r.at("k").get<int64_t>();
  q.block = r.at("block").get<std::string>();
  q.right = r.value("right", false);
  q.rel_error = Number(r, "rel_error");
  q.us = Number(r, "us");
  q.us_p10 = Number(r, "us_p10");
  q.us_p90 = Number(r, "us_p90");
  q.floor_us = Number(r, "floor_us");
  return q;
}

Json ToRecord(const LadderRow& row) {
  Json r;
  r["m"] = row.shape.m;
  r["n"] = row.shape.n;
  r["k"] = row.shape.k;
  if (row.took != row.shape) r["took"] = {row.took.m, row.took.n, row.took.k};
  r["kernel"] = row.kernel;
  r["idea"] = row.idea;
  r["type"] = row.fp8 ? "e4m3" : "f16";
  r["outcome"] = Name(row.outcome);
  if (!row.message.empty()) r["message"] = row.message;
  r["us"] = Measured(row.us);
  r["us_p10"] = Measured(row.us_p10);
  r["us_p90"] = Measured(row.us_p90);
  r["tflops"] = Measured(row.tflops());
  r["calc_diff"] = row.calc_diff;
  r["rel_error"] = row.rel_error;
  return r;
}

LadderRow FromLadderRecord(const Json& r) {
  LadderRow row;
  row.shape = {r.at("m").get<int64_t>(), r.at("n").get<int64_t>(), r.at("k").get<int64_t>()};
  row.took = row.shape;
  if (const auto took = r.find("took"); took != r.end()) {
    row.took = {took->at(0).get<int64_t>(), took->at(1).get<int64_t>(), took->at(2).get<int64_t>()};
  }
  row.kernel = r.at("kernel").get<std::string>();
  row.idea = r.value("idea", "");
  row.fp8 = r.value("type", "") == "e4m3";
  row.outcome = OutcomeOf(r);
  row.message = r.value("message", "");
  row.us = Number(r, "us");
  row.us_p10 = Number(r, "us_p10");
  row.us_p90 = Number(r, "us_p90");
  row.calc_diff = Number(r, "calc_diff");
  row.rel_error = Number(r, "rel_error");
  return row;
}

Json ToRecord(const Summary& summary) {
  Json out;
  out["best_tensorwise_tflops"] = Measured(summary.best_tensorwise_tflops);
  Json groups = Json::array();
  for (const Group& g : summary.groups) {
    Json record;
    record["group"] = g.name;
    record["shapes"] = g.shapes;
    record["share_of_floor"] = Measured(g.share_of_floor);
    record["cublaslt_block_ratio"] = Measured(g.block_ratio);
    record["cublaslt_tensorwise_ratio"] = Measured(g.tensorwise_ratio);
    record["cublaslt_bf16_ratio"] = Measured(g.bf16_ratio);
    if (g.choice_ratio > 0) record["choice_over_best"] = g.choice_ratio;
    if (g.model_ratio > 0) record["model_over_best"] = g.model_ratio;
    groups.push_back(std::move(record));
  }
  out["groups"] = std::move(groups);
  return out;
}

Json ToRecord(const Regret& regret) {
  return {
      {"shapes", regret.shapes}, {"mean", regret.mean}, {"p99", regret.p99}, {"most", regret.most}};
}

Json ToRecord(const RowsSummary& summary) {
  Json record;
  record["m_least"] = summary.rows.least;
  record["m_most"] = summary.rows.most;
  record["shapes"] = summary.shapes;
  record["cublaslt_tensorwise_ratio"] = Measured(summary.tensorwise_ratio);
  record["cublaslt_block_ratio"] = Measured(summary.block_ratio);
  record["least_cublaslt_block_ratio"] = Measured(summary.least_block_ratio);
  if (summary.choice.shapes > 0) {
    record["model_cublaslt_tensorwise_ratio"] = Measured(summary.model_tensorwise_ratio);
    record["choice_regret"] = ToRecord(summary.choice);
    record["model_regret"] = ToRecord(summary.model);
  }
  return record;
}

}  // namespace

double QuantizeResult::bytes() const {
  const double blocks_k = (k + 127) / 128;
  const double scale_rows = block == "128x128" ? (rows + 127) / 128 : rows;
  return (block == "gated" ? 5.0 : 3.0) * rows * k + 4.0 * scale_rows * blocks_k;
}

std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kWrong:
      return "wrong";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kSkipped:
      return "skipped";
  }
  return "skipped";
}

std::string ToJson(const RunResult& run) {
  Json out;
  out["dtype"] = Name(run.dtype);
  out["gpu"] = run.gpu;
  out["driver"] = run.driver;
  out["date"] = run.date;
  out["commit"] = run.commit;
  out["method"] = run.method;
  out["cublaslt"] = run.cublaslt;
  out["repeats"] = run.repeats;
  out["places"] = run.places;
  out["copy_gb_s"] = Measured(run.copy_gb_s);
  out["summary"] = ToRecord(Summarize(run));
  Json rows = Json::array();
  for (const RowsSummary& summary : SummarizeRows(run)) rows.push_back(ToRecord(summary));
  out["summary"]["rows"] = std::move(rows);
  Json shapes = Json::array();
  for (const ShapeResult& s : run.shapes) shapes.push_back(ToRecord(s));
  out["shapes"] = std::move(shapes);
  if (!run.quantize.empty()) {
    Json records = Json::array();
    for (const QuantizeResult& q : run.quantize) records.push_back(ToRecord(q, run.copy_gb_s));
    out["quantize"] = std::move(records);
  }
  if (!run.ladder.empty()) {
    Json records = Json::array();
    for (const LadderRow& row : run.ladder) records.push_back(ToRecord(row));
    out["ladder"] = std::move(records);
  }
  return absl::StrCat(out.dump(1), "\n");
}

absl::StatusOr<RunResult> FromJson(std::string_view json) {
  const Json in = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (in.is_discarded() || !in.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  // The library reports a missing or mistyped field by an exception; it stops here.
  try {
    RunResult run;
    const std::string dtype = in.value("dtype", "e4m3");
    for (const DTypeInfo& info : kDTypes) {
      if (info.name == dtype) run.dtype = info.dtype;
    }
    run.gpu = in.at("gpu").get<std::string>();
    run.driver = in.value("driver", "");
    run.date = in.value("date", "");
    run.commit = in.value("commit", "");
    run.method = in.value("method", "");
    run.cublaslt = in.value("cublaslt", "");
    run.repeats = in.value("repeats", 0);
    run.places = in.value("places", 1);
    run.copy_gb_s = Number(in, "copy_gb_s");
    for (const Json& record : in.at("shapes")) {
      run.shapes.push_back(FromRecord(record));
      run.shapes.back().dtype = run.dtype;
    }
    for (const Json& record : in.value("quantize", Json::array())) {
      run.quantize.push_back(FromQuantizeRecord(record));
    }
    for (const Json& record : in.value("ladder", Json::array())) {
      run.ladder.push_back(FromLadderRecord(record));
    }
    return run;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a result of gemm_bench --json: ", error.what()));
  }
}

absl::StatusOr<RunResult> ReadRun(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  absl::StatusOr<RunResult> run = FromJson(text);
  if (run.ok()) return run;
  return absl::Status(run.status().code(), absl::StrCat(path, ": ", run.status().message()));
}

absl::Status WriteText(const std::string& path, std::string_view text) {
  const std::string beside = absl::StrCat(path, ".new");
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out || std::rename(beside.c_str(), path.c_str()) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be written"));
  }
  return absl::OkStatus();
}

}  // namespace gemmd::kernels::bench
