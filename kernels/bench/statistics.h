// Order statistics and means of measured times.

#pragma once

#include <vector>

namespace gemmd::kernels::bench {

// The value below which `fraction` of the values lie, by linear interpolation between neighbours;
// 0 for no values. Percentile(v, 0) is the least, Percentile(v, 1) the largest.
double Percentile(std::vector<double> values, double fraction);
double Median(std::vector<double> values);

double Mean(const std::vector<double>& values);           // 0 for no values
double GeometricMean(const std::vector<double>& values);  // of positive values; 0 for none

}  // namespace gemmd::kernels::bench
