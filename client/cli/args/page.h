// A page for people: lines and tables that fit a terminal's width, with a little colour.
//
//   Page page;
//   page.Line("gemmd 0.1.0, up 3m");
//   page.Table({{"device", "state"}, {"cpu:0", "serving"}}, {0, 1});
//   page.Shown({.width = 80, .colour = true});

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gemmd::cli {

// What a page is shown on.
struct PageFit {
  int width = 0;   // columns; 0: as many as it takes
  int height = 0;  // lines; 0: likewise
  bool colour = false;
};

// A table's cell. What others wrote in it is made printable when it is shown.
struct Cell {
  Cell(std::string text, bool alarm = false) : text(std::move(text)), alarm(alarm) {}
  Cell(const char* text) : text(text) {}

  std::string text;
  bool alarm = false;  // red: it wants somebody's attention
};
using Row = std::vector<Cell>;

class Page {
 public:
  // One line, without a newline at its end; made printable. What does not fit goes on below,
  // `indent` blanks in.
  void Line(std::string text, int indent = 0);

  // The first row is the header. Columns are as wide as their widest cell; numbers are flush right.
  // Where the width does not do, the columns of the highest rank go first, and a line below names
  // them; those of rank 0 stay, and the widest is cut. `ranks`: one a column, or none.
  void Table(std::vector<Row> rows, std::vector<int> ranks = {});

  std::string Shown(const PageFit& fit) const;

 private:
  struct Part {
    std::string line;
    int indent = 0;
    std::vector<Row> rows;  // a table's; empty for a line
    std::vector<int> ranks;
  };

  std::vector<Part> parts_;
};

}  // namespace gemmd::cli
