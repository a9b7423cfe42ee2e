#include "client/cli/args/page.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/args/printable.h"

namespace gemmd::cli {
namespace {

constexpr size_t kGap = 2;        // blanks between columns
constexpr size_t kNarrowest = 4;  // a column is not cut below it

constexpr char kBold[] = "\033[1m";
constexpr char kRed[] = "\033[31m";
constexpr char kPlain[] = "\033[0m";

// Columns that a UTF-8 text takes; wide characters count as one.
size_t WidthOf(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// The first `width` columns, the last two of them dots.
std::string Cut(const std::string& text, size_t width) {
  if (WidthOf(text) <= width) return text;
  const size_t kept = width > 2 ? width - 2 : 0;
  size_t end = 0, columns = 0;
  while (end < text.size() && columns < kept) {
    ++end;
    while (end < text.size() && (text[end] & 0xc0) == 0x80) ++end;
    ++columns;
  }
  return text.substr(0, end) + std::string(std::min<size_t>(width, 2), '.');
}

void AppendWrapped(const std::string& text, int indent, size_t width,
                   std::vector<std::string>& lines) {
  if (width == 0 || WidthOf(text) <= width) {
    lines.push_back(text);
    return;
  }
  std::string line;
  bool fresh = true;  // nothing but the indent stands on it
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!fresh && WidthOf(line) + 1 + WidthOf(word) > width) {
      lines.push_back(Cut(std::string(absl::StripTrailingAsciiWhitespace(line)), width));
      line.assign(std::min<size_t>(indent, width / 2), ' ');
      fresh = true;
    }
    absl::StrAppend(&line, fresh ? "" : " ", word);
    fresh = false;
  }
  lines.push_back(Cut(line, width));
}

struct Columns {
  std::vector<size_t> shown;   // by index, in order
  std::vector<size_t> widths;  // of all
  std::vector<std::string> hidden;

  size_t Total() const {
    size_t total = shown.empty() ? 0 : kGap * (shown.size() - 1);
    for (size_t i : shown) total += widths[i];
    return total;
  }
};

Columns Fitted(const std::vector<Row>& rows, const std::vector<int>& ranks, size_t width) {
  Columns columns;
  for (const Row& row : rows) columns.widths.resize(std::max(columns.widths.size(), row.size()));
  for (size_t i = 0; i < columns.widths.size(); ++i) {
    columns.shown.push_back(i);
    for (const Row& row : rows) {
      if (i < row.size()) columns.widths[i] = std::max(columns.widths[i], WidthOf(row[i].text));
    }
  }
  if (width == 0) return columns;
  const auto rank = [&](size_t i) { return i < ranks.size() ? ranks[i] : 0; };
  while (columns.Total() > width) {
    // Of equals the last.
    const auto least = std::max_element(columns.shown.begin(), columns.shown.end(),
                                        [&](size_t a, size_t b) { return rank(a) <= rank(b); });
    if (least == columns.shown.end() || rank(*least) == 0) break;
    columns.hidden.insert(columns.hidden.begin(), rows[0][*least].text);
    columns.shown.erase(least);
  }
  while (columns.Total() > width) {
    const size_t widest = *std::max_element(
        columns.shown.begin(), columns.shown.end(),
        [&](size_t a, size_t b) { return columns.widths[a] < columns.widths[b]; });
    if (columns.widths[widest] <= kNarrowest) break;
    --columns.widths[widest];
  }
  return columns;
}

void AppendTable(const std::vector<Row>& given, const std::vector<int>& ranks, const PageFit& fit,
                 std::vector<std::string>& lines) {
  std::vector<Row> rows = given;
  for (Row& row : rows) {
    for (Cell& cell : row) cell.text = Printable(cell.text);
  }
  const Columns columns = Fitted(rows, ranks, fit.width);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i : columns.shown) {
      const Cell cell = i < rows[r].size() ? rows[r][i] : Cell("");
      const std::string text = Cut(cell.text, columns.widths[i]);
      const std::string blanks(columns.widths[i] - std::min(columns.widths[i], WidthOf(text)), ' ');
      const bool number = !text.empty() && absl::ascii_isdigit(text[0]);
      const char* look = !fit.colour ? "" : r == 0 ? kBold : cell.alarm ? kRed : "";
      absl::StrAppend(&line, i == columns.shown.front() ? "" : std::string(kGap, ' '),
                      number ? blanks : "", look, text, *look ? kPlain : "", number ? "" : blanks);
    }
    lines.emplace_back(absl::StripTrailingAsciiWhitespace(line));
  }
  if (!columns.hidden.empty()) {
    AppendWrapped(absl::StrCat("(no room for ", absl::StrJoin(columns.hidden, ", "), ")"), 1,
                  fit.width, lines);
  }
}

}  // namespace

void Page::Line(std::string text, int indent) {
  parts_.push_back({.line = std::move(text), .indent = indent, .rows = {}, .ranks = {}});
}

void Page::Table(std::vector<Row> rows, std::vector<int> ranks) {
  parts_.push_back({.line = {}, .rows = std::move(rows), .ranks = std::move(ranks)});
}

std::string Page::Shown(const PageFit& fit) const {
  std::vector<std::string> lines;
  for (const Part& part : parts_) {
    if (part.rows.empty()) {
      AppendWrapped(Printable(part.line), part.indent, fit.width, lines);
    } else {
      AppendTable(part.rows, part.ranks, fit, lines);
    }
  }
  if (fit.height > 0 && lines.size() > static_cast<size_t>(fit.height)) {
    const size_t left = lines.size() - fit.height + 1;
    lines.resize(fit.height - 1);
    lines.push_back(absl::StrCat("(no room for ", left, " lines)"));
  }
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

}  // namespace gemmd::cli
