#include "kernels/bench/svg.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace gemmd::kernels::bench {

void AddSvgText(std::string& svg, double x, double y, const char* anchor, const std::string& text) {
  const std::string escaped =
      absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  absl::StrAppend(
      &svg, absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                            anchor, escaped));
}

}  // namespace gemmd::kernels::bench
