// What the charts draw with.

#pragma once

#include <string>

namespace gemmd::kernels::bench {

// Appends a text element; x and y are in the drawing's own units, `anchor` is start, middle or end.
void AddSvgText(std::string& svg, double x, double y, const char* anchor, const std::string& text);

}  // namespace gemmd::kernels::bench
