// The daemon's metrics as a scraper sees them.
//
//   Samples before = Scrape(daemon.metrics_address());
//   EXPECT_EQ(Sum(before, "gemmd_buffers"), 0);

#pragma once

#include <map>
#include <string>

namespace gemmd::e2e {

// From "name{label=\"value\",...}", as the exposition writes it, to the sample.
using Samples = std::map<std::string, double>;

// GET /metrics of "127.0.0.1:PORT". Empty when nobody answers.
Samples Scrape(const std::string& address);

// Over all label sets of `name` whose labels contain `label` ("device=\"cpu:0\"").
double Sum(const Samples& samples, const std::string& name, const std::string& label = "");

}  // namespace gemmd::e2e
