// The terminal that a command's stdout is, if it is one: its size, its colours, and a screen of its
// own for what is drawn again and again.

#pragma once

#include <termios.h>

#include "absl/time/time.h"
#include "client/cli/args/page.h"

namespace gemmd::cli {

// Width, and colours unless NO_COLOR is set or TERM is "dumb". COLUMNS overrides the width. Into a
// file or a pipe: no limit and no colour.
PageFit FitOfStdout();

// Gives the terminal back as it was, if a FullScreen has it. For signal handlers, too.
void LeaveFullScreen();

// The alternate screen, without a cursor, and keys as they are pressed, until this object goes.
// ^Z gives the terminal back meanwhile. One at a time.
class FullScreen {
 public:
  // Whether stdin and stdout are terminals that can do it.
  static bool Possible();

  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // What the page is to fit: all of the terminal as it is now, less a line.
  PageFit Fit() const;
  // Waits that long for a key; true if it was 'q' or the terminal has gone.
  bool WaitForQuit(absl::Duration duration) const;
};

}  // namespace gemmd::cli
