#include "tests/kernels/bench/runs.h"

namespace gemmd::kernels::bench {

ShapeResult Timed(const Shape& shape, double us) {
  ShapeResult r;
  r.shape = shape;
  r.outcome = Outcome::kOk;
  r.kernel = "sm90_fp8_skinny_m64n64s10";
  r.reason = "model";
  r.us = us;
  r.us_p10 = us * 0.99;
  r.us_p90 = us * 1.02;
  r.us_by_place = {us * 0.99, us * 1.01};
  r.floor_us = 8;
  r.cublaslt_tensorwise_us = 12;
  r.calc_diff = 1.5e-6;
  r.rel_error = 1.7e-3;
  r.checked_rows = shape.m;
  return r;
}

RunResult SmallRun() {
  RunResult run;
  run.gpu = "NVIDIA H200";
  run.driver = "580.159.04";
  run.date = "2026-11-21";
  run.commit = "abc123";
  run.method = "cupti";
  run.cublaslt = "130100";
  run.repeats = 24;
  run.places = 2;
  run.copy_gb_s = 4100;
  run.shapes = {Timed({64, 4096, 7168}, 10), Timed({4096, 4096, 7168}, 200)};
  run.shapes[1].floor_us = 30;
  run.shapes[1].cublaslt_tensorwise_us = 160;
  run.shapes[1].cublaslt_block_us = 220;
  run.shapes[1].cublaslt_bf16_us = 320;
  ShapeResult refused;
  refused.shape = {7, 9, 100};
  refused.outcome = Outcome::kRefused;
  refused.message = "k=100: rows of a are 100 bytes apart";
  run.shapes.push_back(refused);
  ShapeResult skipped;
  skipped.shape = {1, 1, 1};
  run.shapes.push_back(skipped);
  return run;
}

}  // namespace gemmd::kernels::bench
