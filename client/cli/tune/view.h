// What `gemmctl tune` shows: a bar while it measures, a table of before and after at the end.

#pragma once

#include <string>
#include <vector>

#include "client/cli/args/output.h"
#include "gemmd/v1/admin_service.pb.h"

namespace gemmd::cli {

class TuneView {
 public:
  void Take(const v1::TuneProgress& progress);

  // "cuda:0 [#####     ]  12 of 40 shapes, 3 faster".
  std::string Bar() const;
  // One row a shape, and a line of sums.
  std::string Text() const;
  Json Document() const;
  bool begun() const { return !device_.empty(); }

 private:
  std::string device_;
  int shapes_ = 0;
  int faster_ = 0;
  std::vector<v1::TunedShape> tuned_;
};

}  // namespace gemmd::cli
